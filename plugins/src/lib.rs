//! The scheduling choices a user can switch.
