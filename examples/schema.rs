//! For whoever looks after the database: prints what makes the tables of lobster and its roles, applies it, or looks whether all is there.
//!
//! ```sh
//! cargo run --features postgres --example schema -- sql | psql shop
//! ```

use anyhow::{Context, bail};
use lobster_core::{
    OsHost,
    store::postgres::{self, Options, Postgres, Role, SCHEMA},
};
use std::sync::Arc;

const HELP: &str = "\
schema sql [SCHEMA] [FROM]      prints the statements that bring an installation of version FROM to this one  [default: lobster 0]
schema roles [SCHEMA]           prints the statements that make its roles
schema migrate URL              applies what is missing
schema verify URL ROLE          looks whether the role that the URL names has what a worker, a submit or a view needs; writes nothing

A URL is postgres://user@host/database, with ?lobster_schema=SCHEMA for another name than `lobster`.";

/// What an installation may be called.
fn named(schema: &str) -> anyhow::Result<&str> {
    Options::from_url("postgres://localhost/any")?.schema(schema)?;
    Ok(schema)
}

fn print(statements: &str) -> anyhow::Result<()> {
    if statements.is_empty() {
        bail!("nothing is newer than that version");
    }
    print!("{statements}");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sql"] => print(&postgres::sql(SCHEMA, 0))?,
        ["sql", schema] => print(&postgres::sql(named(schema)?, 0))?,
        ["sql", schema, from] => print(&postgres::sql(named(schema)?, from.parse().context("FROM is a version: a number")?))?,
        ["roles"] => print(&postgres::roles(SCHEMA))?,
        ["roles", schema] => print(&postgres::roles(named(schema)?))?,
        ["migrate", url] => {
            Postgres::migrate(Options::from_url(url)?, Arc::new(OsHost::current().context("it runs inside a runtime")?)).await?;
            println!("the schema is of the version of this program");
        }
        ["verify", url, role] => {
            let needs = match role {
                "worker" => Role::Worker,
                "submit" => Role::Submit,
                "view" => Role::View,
                _ => bail!("there is no role {role}: worker, submit or view"),
            };
            Postgres::verify(&Options::from_url(url)?, needs).await?;
            println!("everything that a {role} needs is there");
        }
        _ => bail!("{HELP}"),
    }
    Ok(())
}
