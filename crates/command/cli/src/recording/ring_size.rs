//! The size of a ring, as the user wants it.

use everycall_format::env;
use everycall_io::say;
use everycall_units::Size;

/// The option's, the environment's or the default size, in bytes.
pub fn ring_size(option: Option<u64>) -> u64 {
    let from_environment = || {
        let text = std::env::var_os(env::RING_SIZE)?;
        let size = env::parse_ring_size(text.as_encoded_bytes());
        if size.is_none() {
            say!(
                "everycall: {} is {:?}, and {} was expected; using {}",
                env::RING_SIZE,
                text,
                env::RING_SIZE_ALLOWED,
                Size(env::RING_SIZE_DEFAULT)
            );
        }
        size
    };
    option.or_else(from_environment).unwrap_or(env::RING_SIZE_DEFAULT)
}
