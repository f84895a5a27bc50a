//! The chat-completions probe and load tester.
