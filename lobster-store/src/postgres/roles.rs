//! Who may do what: roles of least privilege.
//!
//! Invariant: what is granted here is what the statements of this tier need and no more; its conformance suite runs as the worker.

/// What a process does with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Executes runs, and does everything else but migrating.
    Worker,
    /// Submits and cancels runs, and reads.
    Submit,
    /// Reads.
    View,
}

/// Table, what a worker may do with it, and what a submitter may. Everybody may read everything.
const RIGHTS: &[(&str, &[&str], &[&str])] = &[
    ("runs", &["INSERT", "UPDATE", "DELETE"], &["INSERT", "UPDATE (state, cancel, wake, ended, reason)"]),
    ("inputs", &["INSERT", "DELETE"], &["INSERT"]),
    ("deltas", &["INSERT", "DELETE"], &[]),
    ("changes", &["INSERT", "DELETE"], &[]),
    ("manifests", &["INSERT", "UPDATE", "DELETE"], &[]),
    ("parts", &["INSERT", "UPDATE", "DELETE"], &[]),
    ("outcomes", &["INSERT", "DELETE"], &["INSERT"]),
    ("verdicts_in", &["INSERT", "DELETE"], &[]),
    ("tags", &["INSERT", "DELETE"], &["INSERT"]),
    ("nodes", &["INSERT", "UPDATE", "DELETE"], &[]),
    ("node_tasks", &["INSERT", "DELETE"], &[]),
    ("timelines", &["INSERT", "UPDATE"], &[]),
    ("meta", &[], &[]),
];

impl Role {
    fn rights(self) -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
        RIGHTS.iter().map(move |(table, worker, submit)| {
            let more: &[&str] = match self {
                Role::Worker => worker,
                Role::Submit => submit,
                Role::View => &[],
            };
            (*table, [&["SELECT"], more].concat())
        })
    }
}

/// The statements that make four roles for an installation, none of which can log in: `<schema>_owner` owns schema and tables and
/// migrates, `<schema>_worker`, `<schema>_submit` and `<schema>_view` do what [`Role`] says. For a superuser, in the database, after what
/// [`sql`](super::sql) prints; again after each migration. Then `GRANT <schema>_worker TO ..` makes a user a worker.
///
/// ```
/// let file = lobster_store::postgres::roles("lobster");
/// assert!(file.contains("GRANT SELECT, INSERT, DELETE ON \"lobster\".deltas TO lobster_worker;"));
/// ```
pub fn roles(schema: &str) -> String {
    // PostgreSQL cuts names at 63 bytes.
    let name = |role: &str| format!("{schema:.50}_{role}");
    let (owner, others) = (name("owner"), [(Role::Worker, "worker"), (Role::Submit, "submit"), (Role::View, "view")]);
    let mut text = "BEGIN;\n".to_owned();
    for role in [owner.clone()].into_iter().chain(others.map(|(_, role)| name(role))) {
        text += &format!(
            "DO $$ BEGIN CREATE ROLE {role} NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;\n"
        );
    }
    text += &format!("ALTER SCHEMA \"{schema}\" OWNER TO {owner};\n");
    for (table, ..) in RIGHTS {
        text += &format!("ALTER TABLE \"{schema}\".{table} OWNER TO {owner};\n");
    }
    for (role, short) in others {
        let to = name(short);
        text += &format!("GRANT USAGE ON SCHEMA \"{schema}\" TO {to};\n");
        for (table, rights) in role.rights() {
            text += &format!("GRANT {} ON \"{schema}\".{table} TO {to};\n", rights.join(", "));
        }
    }
    text + "COMMIT;\n"
}

/// A query for what the role that asks lacks, a line each.
pub(super) fn missing(schema: &str, role: Role) -> String {
    let verb = |right: &str| right.split(' ').next().unwrap_or_default().to_owned();
    let rows: Vec<_> = role
        .rights()
        .flat_map(|(table, rights)| rights.into_iter().map(move |right| format!("('{table}', '{}')", verb(right))))
        .collect();
    format!(
        "SELECT r.verb || ' on ' || r.of FROM (VALUES {}) AS r(of, verb) WHERE NOT CASE r.verb \
         WHEN 'DELETE' THEN has_table_privilege('\"{schema}\".' || r.of, r.verb) \
         ELSE has_any_column_privilege('\"{schema}\".' || r.of, r.verb) END",
        rows.join(", ")
    )
}
