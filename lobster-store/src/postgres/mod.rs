//! The PostgreSQL tier.
