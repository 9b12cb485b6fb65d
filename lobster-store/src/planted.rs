//! Planted bugs: wrong turns of the engine and of tiers, to prove that the simulation, or the tests on real servers, would see them.
//!
//! Invariant: without `--cfg lobster_planted` a planted bug is the constant `false`, and its code is gone.

/// Is the planted bug of this name chosen?
#[macro_export]
#[doc(hidden)]
macro_rules! planted {
    ($name:literal) => {
        ::core::cfg!(lobster_planted) && $crate::planted::chosen($name)
    };
}

/// Is this the bug that `LOBSTER_BUG` chooses?
#[cfg(lobster_planted)]
pub fn chosen(name: &str) -> bool {
    static CHOSEN: std::sync::LazyLock<Option<String>> = std::sync::LazyLock::new(|| std::env::var("LOBSTER_BUG").ok());
    CHOSEN.as_deref() == Some(name)
}

/// None is.
#[cfg(not(lobster_planted))]
pub const fn chosen(_name: &str) -> bool {
    false
}
