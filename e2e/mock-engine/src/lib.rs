//! A fake vLLM or SGLang that keeps a KV cache and publishes KV events.
