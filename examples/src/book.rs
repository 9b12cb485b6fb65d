//! The order book: the real orders of `data/`, joined with their lines.
//! Every amount is a decimal from the first byte read; no number here ever passes through a float.

use std::collections::BTreeMap;

use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize};

const ORDERS_CSV: &[u8] = include_bytes!("../data/orders.csv");
const ORDER_DETAILS_CSV: &[u8] = include_bytes!("../data/order-details.csv");

/// One order with its lines, as the file has it: whether it makes sense is for [`check`](crate::pricing::check) to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The number of the order.
    pub id: u32,
    /// Who ordered.
    pub customer: Option<String>,
    /// When it was ordered, `1996-07-04 00:00:00.000`.
    pub ordered: Option<String>,
    /// When it is wanted, in the same format.
    pub required: Option<String>,
    /// When it was shipped, in the same format, if it was.
    pub shipped: Option<String>,
    /// Cost of the carriage.
    pub freight: Decimal,
    /// Name of the receiver.
    pub ship_name: Option<String>,
    /// Street of the receiver.
    pub ship_address: Option<String>,
    /// Country of the receiver.
    pub ship_country: Option<String>,
    /// What was ordered.
    pub lines: Vec<Line>,
}

/// One line of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The product's number.
    pub product: u32,
    /// Price of one piece.
    pub unit_price: Decimal,
    /// Pieces ordered.
    pub quantity: i32,
    /// Part of the price that is let off: 0 is none, 1 is all.
    pub discount: Decimal,
}

/// Why the order book could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// A row does not parse; the message names file and row.
    #[error("{file}: {source}")]
    Row {
        /// The file.
        file: &'static str,
        /// What is wrong, and where.
        source: csv::Error,
    },
    /// An order number occurs twice.
    #[error("orders.csv: order {0} occurs twice")]
    Twice(u32),
    /// A line belongs to no order.
    #[error("order-details.csv: a line of product {product} belongs to order {order}, which does not exist")]
    Orphan {
        /// The order the line names.
        order: u32,
        /// The product of the line.
        product: u32,
    },
}

/// All orders of the example data, by number.
///
/// # Errors
/// Only if the files compiled into the program are damaged.
pub fn all_orders() -> Result<Vec<Order>, BookError> {
    read_orders(ORDERS_CSV, ORDER_DETAILS_CSV)
}

/// Reads orders and lines in the format of `data/` and joins them; the answer is sorted by order number.
///
/// # Errors
/// A row that does not parse, an order number that occurs twice, a line without its order.
pub fn read_orders(orders: &[u8], details: &[u8]) -> Result<Vec<Order>, BookError> {
    let mut book = BTreeMap::new();
    let mut rows = csv::ReaderBuilder::new().flexible(true).from_reader(orders);
    let in_orders = |source| BookError::Row { file: "orders.csv", source };
    let header = rows.headers().map_err(in_orders)?.clone();
    for row in rows.records() {
        let row = row.map_err(in_orders)?;
        let row = with_whole_address(&row, &header).deserialize::<OrderRow>(Some(&header));
        let order = Order::from(row.map_err(in_orders)?);
        let id = order.id;
        if book.insert(id, order).is_some() {
            return Err(BookError::Twice(id));
        }
    }
    for row in csv::Reader::from_reader(details).deserialize::<LineRow>() {
        let row = row.map_err(|source| BookError::Row { file: "order-details.csv", source })?;
        match book.get_mut(&row.order) {
            Some(order) => order.lines.push(Line::from(row)),
            None => return Err(BookError::Orphan { order: row.order, product: row.product }),
        }
    }
    Ok(book.into_values().collect())
}

#[derive(Deserialize)]
struct OrderRow {
    #[serde(rename = "OrderID")]
    id: u32,
    #[serde(rename = "CustomerID", deserialize_with = "null_as_none")]
    customer: Option<String>,
    #[serde(rename = "OrderDate", deserialize_with = "null_as_none")]
    ordered: Option<String>,
    #[serde(rename = "RequiredDate", deserialize_with = "null_as_none")]
    required: Option<String>,
    #[serde(rename = "ShippedDate", deserialize_with = "null_as_none")]
    shipped: Option<String>,
    #[serde(rename = "Freight")]
    freight: Decimal,
    #[serde(rename = "ShipName", deserialize_with = "null_as_none")]
    ship_name: Option<String>,
    #[serde(rename = "ShipAddress", deserialize_with = "null_as_none")]
    ship_address: Option<String>,
    #[serde(rename = "ShipCountry", deserialize_with = "null_as_none")]
    ship_country: Option<String>,
}

#[derive(Deserialize)]
struct LineRow {
    #[serde(rename = "OrderID")]
    order: u32,
    #[serde(rename = "ProductID")]
    product: u32,
    #[serde(rename = "UnitPrice")]
    unit_price: Decimal,
    #[serde(rename = "Quantity")]
    quantity: i32,
    #[serde(rename = "Discount")]
    discount: Decimal,
}

impl From<OrderRow> for Order {
    fn from(row: OrderRow) -> Self {
        let OrderRow { id, customer, ordered, required, shipped, freight, ship_name, ship_address, ship_country } = row;
        let lines = Vec::new();
        Order { id, customer, ordered, required, shipped, freight, ship_name, ship_address, ship_country, lines }
    }
}

impl From<LineRow> for Line {
    fn from(row: LineRow) -> Self {
        Line { product: row.product, unit_price: row.unit_price, quantity: row.quantity, discount: row.discount }
    }
}

/// The file does not quote its addresses, and some have commas of their own (`Rua do Paço, 67`). No other column has, so
/// whatever a row has too much of belongs to the address.
fn with_whole_address(row: &csv::StringRecord, header: &csv::StringRecord) -> csv::StringRecord {
    let extra = row.len().saturating_sub(header.len());
    let Some(address) = header.iter().position(|column| column == "ShipAddress").filter(|_| extra > 0) else {
        return row.clone();
    };
    let fields: Vec<&str> = row.iter().collect();
    let whole = fields[address..=address + extra].join(",");
    let mut joined: csv::StringRecord =
        fields[..address].iter().copied().chain([whole.as_str()]).chain(fields[address + extra + 1..].iter().copied()).collect();
    joined.set_position(row.position().cloned());
    joined
}

fn null_as_none<'de, D: Deserializer<'de>>(field: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(field)?;
    Ok((text != "NULL").then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: &str = "OrderID,CustomerID,OrderDate,RequiredDate,ShippedDate,Freight,ShipName,ShipAddress,ShipCountry\n\
        7,ABCDE,1996-07-04 00:00:00.000,1996-08-01 00:00:00.000,NULL,32.38,\"A, B\",24, place Kléber,France\n";
    const DETAILS: &str = "OrderID,ProductID,UnitPrice,Quantity,Discount\n7,11,14.10,12,0.15\n";

    fn exact(text: &str) -> Decimal {
        Decimal::from_str_exact(text).expect("the test writes a decimal")
    }

    #[test]
    fn the_whole_book_is_read() {
        let book = all_orders().expect("the example data are whole");
        assert_eq!(book.len(), 830);
        assert_eq!(book.iter().map(|order| order.lines.len()).sum::<usize>(), 2_155);
        assert!(book.is_sorted_by_key(|order| order.id));
        assert_eq!(book.iter().map(|order| order.freight).sum::<Decimal>(), exact("64942.69"));
        let second = &book[1];
        assert_eq!((second.id, second.ship_name.as_deref()), (10_249, Some("Toms Spezialitäten")));
    }

    #[test]
    fn every_country_is_a_country_also_behind_an_address_with_commas() {
        let book = all_orders().expect("the example data are whole");
        let countries: std::collections::BTreeSet<_> = book.iter().filter_map(|order| order.ship_country.as_deref()).collect();
        assert_eq!(countries.len(), 21, "{countries:?}");
        assert_eq!(book[2].ship_address.as_deref(), Some("Rua do Paço, 67"));
        let with_comma = |order: &&Order| order.ship_address.as_deref().is_some_and(|address| address.contains(','));
        assert_eq!(book.iter().filter(with_comma).count(), 176);
    }

    #[test]
    fn a_row_that_is_too_short_is_refused() {
        let short = ORDERS.replace("24, place Kléber,", "");
        let error = read_orders(short.as_bytes(), DETAILS.as_bytes()).expect_err("a field is missing");
        assert!(error.to_string().contains("line: 2"), "{error}");
    }

    #[test]
    fn null_is_none_and_amounts_keep_every_digit() {
        let book = read_orders(ORDERS.as_bytes(), DETAILS.as_bytes()).expect("both files are well-formed");
        let order = &book[0];
        assert_eq!(order.shipped, None);
        assert_eq!(order.ship_name.as_deref(), Some("A, B"));
        assert_eq!((order.ship_address.as_deref(), order.ship_country.as_deref()), (Some("24, place Kléber"), Some("France")));
        assert_eq!((order.lines[0].unit_price.to_string(), order.lines[0].discount), ("14.10".to_owned(), exact("0.15")));
    }

    #[test]
    fn a_damaged_row_is_named() {
        let damaged = DETAILS.replace("14.10", "fourteen");
        let error = read_orders(ORDERS.as_bytes(), damaged.as_bytes()).expect_err("a word is no price");
        let message = error.to_string();
        assert!(message.contains("order-details.csv") && message.contains("line: 2"), "{message}");
    }

    #[test]
    fn a_line_without_its_order_and_an_order_twice_are_refused() {
        let orphan = DETAILS.replace("\n7,", "\n8,");
        let error = read_orders(ORDERS.as_bytes(), orphan.as_bytes()).expect_err("order 8 does not exist");
        assert!(matches!(error, BookError::Orphan { order: 8, product: 11 }), "{error}");
        let row = ORDERS.lines().nth(1).expect("the second line is the order");
        let twice = format!("{ORDERS}{row}\n");
        let error = read_orders(twice.as_bytes(), DETAILS.as_bytes()).expect_err("order 7 occurs twice");
        assert!(matches!(error, BookError::Twice(7)), "{error}");
    }

    #[test]
    fn an_order_survives_json_unchanged() {
        for order in all_orders().expect("the example data are whole") {
            let text = serde_json::to_string(&order).expect("an order has only strings, numbers and lists");
            assert_eq!(serde_json::from_str::<Order>(&text).expect("it was written a line ago"), order);
        }
    }
}
