//! `kvasir agent`: follows engines' KV events and publishes what they hold.
