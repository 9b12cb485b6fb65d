//! Where these tests have a server keep their records: in a database of their own, made by somebody else, as a role that may do no more
//! than a worker, and by the pooler if the run has one.

use lobster_core::store::postgres::{SCHEMA, roles, sql};
use lobster_servers::shared::{self, as_member, by_the_pooler};

/// The URL of such a database.
pub fn postgres() -> String {
    let schema = [sql(SCHEMA, 0), roles(SCHEMA)].concat();
    by_the_pooler(&as_member(&shared::postgres(), "lobster_worker", &schema))
}
