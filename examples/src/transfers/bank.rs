//! The bank: accounts, orders, movements of money and receipts, in tables beside those of lobster.
//!
//! Invariant: no index or constraint of these tables keeps anything from being written twice; whoever counts would see it.

use std::fmt;

use anyhow::Context;
#[cfg(not(feature = "postgres"))]
use anyhow::bail;
#[cfg(feature = "postgres")]
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection, Executor, Row};

use crate::database::Database;

/// Accounts there are.
pub const ACCOUNTS: i64 = 20;
/// What each has in the beginning.
pub const CENTS: i64 = 10_000;

/// An order: so much from one account to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Account.
    pub from: i64,
    /// Another account.
    pub to: i64,
    /// How much.
    pub cents: i64,
}

impl Order {
    /// The order of this number: the same whenever it is asked for.
    pub fn drawn(number: i64) -> Self {
        let mut chance = fastrand::Rng::with_seed(number.cast_unsigned());
        let from = chance.i64(0..ACCOUNTS);
        Self { from, to: (from + chance.i64(1..ACCOUNTS)) % ACCOUNTS, cents: chance.i64(1..=100) }
    }

    /// What it changes, in the order of the accounts: transactions that lock them in one order never wait for each other in a circle.
    pub fn changes(self) -> [(i64, i64); 2] {
        let (from, to) = ((self.from, -self.cents), (self.to, self.cents));
        if self.from < self.to { [from, to] } else { [to, from] }
    }
}

/// Writes an order's number down.
pub const ADD_ORDER: &str = "INSERT INTO orders (number) VALUES ($1)";
/// Changes what an account has.
pub const CHANGE_ACCOUNT: &str = "UPDATE accounts SET cents = cents + $1 WHERE id = $2";
/// Writes down that the money of an order was moved.
pub const ADD_MOVEMENT: &str = "INSERT INTO movements (number) VALUES ($1)";
/// Writes the receipt of an order.
pub const ADD_RECEIPT: &str = "INSERT INTO receipts (number) VALUES ($1)";

const TABLES: [&str; 5] = [
    "CREATE TABLE IF NOT EXISTS accounts (id BIGINT PRIMARY KEY, cents BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS orders (number BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS movements (number BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS receipts (number BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS kills (n BIGINT NOT NULL)",
];

/// A connection of the application's own to the database of the store.
pub enum Bank {
    /// To a file.
    File(SqliteConnection),
    /// To a server.
    #[cfg(feature = "postgres")]
    Server(PgConnection),
}

impl Bank {
    /// Opens it; a file that is missing is made.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn open(db: &str) -> anyhow::Result<Self> {
        // What is behind the question mark is for the engine.
        let url = db.split('?').next().unwrap_or(db);
        match Database::of(url)? {
            Database::File(path) => {
                let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
                Ok(Self::File(options.connect().await.context("the file of the bank")?))
            }
            #[cfg(feature = "postgres")]
            Database::Server(_) => {
                let mut connection = url.parse::<PgConnectOptions>()?.connect().await.context("the server of the bank")?;
                // Without this a role that has the name of lobster's schema would find its tables there, as soon as there is one.
                connection.execute("SET search_path TO public").await?;
                Ok(Self::Server(connection))
            }
            #[cfg(not(feature = "postgres"))]
            Database::Server(_) => bail!("this build knows no servers: `cargo run --features postgres ..`"),
        }
    }

    /// Makes the tables and fills the accounts, where that was not done before. Nobody else writes meanwhile.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn found(&mut self) -> anyhow::Result<()> {
        for table in TABLES {
            self.run(table).await?;
        }
        if self.number("SELECT count(*) FROM accounts").await? == 0 {
            let rows: Vec<String> = (0..ACCOUNTS).map(|id| format!("({id}, {CENTS})")).collect();
            self.run(&format!("INSERT INTO accounts (id, cents) VALUES {}", rows.join(", "))).await?;
        }
        Ok(())
    }

    /// Notes a kill of the working process, while none is there.
    ///
    /// # Errors
    /// The database cannot be written.
    pub async fn add_kill(&mut self) -> anyhow::Result<()> {
        self.run("INSERT INTO kills (n) VALUES (1)").await
    }

    /// The orders from 1 to `transfers` that are not written down yet.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn missing(&mut self, transfers: u64) -> anyhow::Result<Vec<i64>> {
        let known: std::collections::BTreeSet<i64> = self.numbers("SELECT number FROM orders").await?.into_iter().collect();
        Ok((1..=transfers.cast_signed()).filter(|number| !known.contains(number)).collect())
    }

    /// How many receipts there are.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn receipts(&mut self) -> anyhow::Result<u64> {
        Ok(self.number("SELECT count(*) FROM receipts").await?.cast_unsigned())
    }

    /// Counts everything.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn figures(&mut self, asked: u64) -> anyhow::Result<Figures> {
        const WHOLE: &str = "SELECT count(*) FROM (SELECT number FROM orders INTERSECT SELECT number FROM movements INTERSECT \
                             SELECT number FROM receipts) AS whole WHERE number <= ";
        let whole = self.number(&format!("{WHOLE}{asked}")).await?;
        let mut doubled = 0;
        for table in ["orders", "movements", "receipts"] {
            // Of an order that is not there everything is one too many.
            let once = format!("SELECT count(DISTINCT number) FROM {table} WHERE number IN (SELECT number FROM orders)");
            doubled += self.number(&format!("SELECT count(*) FROM {table}")).await? - self.number(&once).await?;
        }
        Ok(Figures {
            transfers: self.number("SELECT count(DISTINCT number) FROM orders").await?,
            applied: self.number("SELECT count(DISTINCT number) FROM movements").await?,
            receipts: self.number("SELECT count(DISTINCT number) FROM receipts").await?,
            sum: self.number("SELECT CAST(sum(cents) AS BIGINT) FROM accounts").await?,
            doubled,
            lost: asked.cast_signed() - whole,
            kills: self.number("SELECT count(*) FROM kills").await?,
        })
    }

    async fn run(&mut self, text: &str) -> anyhow::Result<()> {
        let text = unprepared(text);
        match self {
            Self::File(connection) => connection.execute(text).await.map(drop)?,
            #[cfg(feature = "postgres")]
            Self::Server(connection) => connection.execute(text).await.map(drop)?,
        }
        Ok(())
    }

    async fn numbers(&mut self, text: &str) -> anyhow::Result<Vec<i64>> {
        let text = unprepared(text);
        let numbers: sqlx::Result<Vec<i64>> = match self {
            Self::File(connection) => connection.fetch_all(text).await?.iter().map(|row| row.try_get(0)).collect(),
            #[cfg(feature = "postgres")]
            Self::Server(connection) => connection.fetch_all(text).await?.iter().map(|row| row.try_get(0)).collect(),
        };
        Ok(numbers?)
    }

    async fn number(&mut self, text: &str) -> anyhow::Result<i64> {
        self.numbers(text).await?.first().copied().context("a count without a number")
    }

    /// Closes it.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn close(self) -> anyhow::Result<()> {
        match self {
            Self::File(connection) => connection.close().await?,
            #[cfg(feature = "postgres")]
            Self::Server(connection) => connection.close().await?,
        }
        Ok(())
    }
}

/// Sent as one message: before the server there may be a pooler, which keeps a connection together for one transaction only.
fn unprepared(text: &str) -> sqlx::RawSql {
    sqlx::raw_sql(sqlx::AssertSqlSafe(text))
}

/// What the tables say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Orders.
    pub transfers: i64,
    /// Those whose money was moved.
    pub applied: i64,
    /// Those with a receipt.
    pub receipts: i64,
    /// What all accounts have together.
    pub sum: i64,
    /// Rows that are there more than once, or belong to no order.
    pub doubled: i64,
    /// Of those that were asked for, the ones of which something is missing.
    pub lost: i64,
    /// Kills of the working process.
    pub kills: i64,
}

impl Figures {
    /// Is everything as it should be?
    pub fn are_good(&self) -> bool {
        self.sum == ACCOUNTS * CENTS && self.doubled == 0 && self.lost == 0
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transfers, applied, receipts, sum, doubled, lost, kills } = self;
        write!(
            f,
            "transfers={transfers} applied={applied} receipts={receipts} sum={sum} doubled={doubled} lost={lost} kills={kills}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn bank() -> Bank {
        let mut bank = Bank::File(SqliteConnection::connect("sqlite::memory:").await.expect("a database in memory"));
        bank.found().await.expect("it can be written");
        bank
    }

    async fn write(bank: &mut Bank, table: &str, numbers: &[i64]) {
        for number in numbers {
            bank.run(&format!("INSERT INTO {table} (number) VALUES ({number})")).await.expect("it can be written");
        }
    }

    #[tokio::test]
    async fn what_is_there_twice_or_missing_or_without_an_order_is_seen() {
        let mut bank = bank().await;
        for table in ["orders", "movements", "receipts"] {
            write(&mut bank, table, &[1, 2, 3]).await;
        }
        let good = bank.figures(3).await.expect("it can be read");
        assert!(good.are_good(), "{good}");
        assert_eq!((good.transfers, good.applied, good.receipts, good.sum), (3, 3, 3, 200_000));
        assert_eq!(bank.figures(4).await.expect("it can be read").lost, 1);
        write(&mut bank, "receipts", &[2]).await;
        assert_eq!(bank.figures(3).await.expect("it can be read").doubled, 1);
        write(&mut bank, "movements", &[9]).await;
        assert_eq!(bank.figures(3).await.expect("it can be read").doubled, 2);
        bank.run("UPDATE accounts SET cents = cents + 1 WHERE id = 3").await.expect("it can be written");
        bank.run("DELETE FROM receipts WHERE number = 2").await.expect("it can be written");
        bank.run("DELETE FROM movements WHERE number = 9").await.expect("it can be written");
        let figures = bank.figures(2).await.expect("it can be read");
        assert_eq!((figures.sum, figures.doubled, figures.lost), (200_001, 0, 1));
        assert!(!figures.are_good());
        assert_eq!(bank.missing(5).await.expect("it can be read"), [4, 5]);
    }

    #[tokio::test]
    async fn a_bank_is_founded_once() {
        let mut bank = bank().await;
        bank.add_kill().await.expect("it can be written");
        bank.found().await.expect("it can be written");
        let figures = bank.figures(1).await.expect("it can be read");
        assert_eq!((figures.sum, figures.kills, figures.lost), (ACCOUNTS * CENTS, 1, 1));
    }

    #[test]
    fn an_order_moves_money_between_two_accounts() {
        for number in 1..1_000 {
            let order = Order::drawn(number);
            assert_eq!(order, Order::drawn(number));
            let [(first, more), (second, less)] = order.changes();
            assert!(first < second && more + less == 0 && more != 0, "{order:?}");
        }
    }
}
