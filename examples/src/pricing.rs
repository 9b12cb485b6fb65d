//! What an order costs, and whether it may be charged at all: the pure arithmetic behind the ordinary steps.
//! Decimals only; the one rounding is half-up to cents, once per order.

use jiff::civil::DateTime;
use rust_decimal::{Decimal, RoundingStrategy};
use serde::{Deserialize, Serialize};

use crate::book::Order;

/// The price of one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// The order.
    pub order: u32,
    /// Before discount.
    pub gross: Decimal,
    /// After discount, rounded half-up to cents: what is charged.
    pub total: Decimal,
}

/// Why an order must not be charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Something that every order has is missing.
    #[error("order {order} has no {what}")]
    Missing {
        /// The order.
        order: u32,
        /// What is missing.
        what: &'static str,
    },
    /// A value is out of its range.
    #[error("order {order}: {what} is {value}, allowed is {allowed}")]
    OutOfRange {
        /// The order.
        order: u32,
        /// Which value.
        what: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        allowed: &'static str,
    },
}

/// The exact value of all lines after discount.
pub fn value_after_discount(order: &Order) -> Decimal {
    order.lines.iter().map(|line| line.unit_price * Decimal::from(line.quantity) * (Decimal::ONE - line.discount)).sum()
}

/// Prices an order.
pub fn price(order: &Order) -> Price {
    Price {
        order: order.id,
        gross: order.lines.iter().map(|line| line.unit_price * Decimal::from(line.quantity)).sum(),
        total: half_up_to_cents(value_after_discount(order)),
    }
}

/// Looks whether an order is well-formed: it names customer and receiver, has at least one line, prices, quantities and
/// discounts are in their ranges, and its dates are dates in a possible sequence.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(order: &Order) -> Result<(), Malformed> {
    let missing = |what| Malformed::Missing { order: order.id, what };
    let out_of_range = |what, value: String, allowed| Malformed::OutOfRange { order: order.id, what, value, allowed };
    let named = |field: &Option<String>| field.as_deref().is_some_and(|text| !text.trim().is_empty());

    if !named(&order.customer) {
        return Err(missing("customer"));
    }
    if !named(&order.ship_name) || !named(&order.ship_country) {
        return Err(missing("receiver"));
    }
    if order.lines.is_empty() {
        return Err(missing("lines"));
    }
    if order.freight < Decimal::ZERO {
        return Err(out_of_range("freight", order.freight.to_string(), "0 or more"));
    }
    for line in &order.lines {
        if line.unit_price < Decimal::ZERO {
            return Err(out_of_range("unit price", line.unit_price.to_string(), "0 or more"));
        }
        if line.quantity <= 0 {
            return Err(out_of_range("quantity", line.quantity.to_string(), "1 or more"));
        }
        if line.discount < Decimal::ZERO || line.discount > Decimal::ONE {
            return Err(out_of_range("discount", line.discount.to_string(), "0 to 1"));
        }
    }

    let date = |what: &'static str, text: &String| {
        text.parse::<DateTime>().map_err(|_| out_of_range(what, text.clone(), "a date such as 1996-07-04 00:00:00.000"))
    };
    let ordered = date("order date", order.ordered.as_ref().ok_or_else(|| missing("order date"))?)?;
    let required = date("required date", order.required.as_ref().ok_or_else(|| missing("required date"))?)?;
    if required < ordered {
        return Err(out_of_range("required date", required.to_string(), "the order date or later"));
    }
    if let Some(text) = &order.shipped {
        let shipped = date("shipping date", text)?;
        if shipped < ordered {
            return Err(out_of_range("shipping date", shipped.to_string(), "the order date or later"));
        }
    }
    Ok(())
}

fn half_up_to_cents(amount: Decimal) -> Decimal {
    let mut cents = amount.round_dp_with_strategy(2, RoundingStrategy::MidpointAwayFromZero);
    cents.rescale(2);
    cents
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::{Line, all_orders};

    fn exact(text: &str) -> Decimal {
        Decimal::from_str_exact(text).expect("the test writes a decimal")
    }

    fn order() -> Order {
        all_orders().expect("the example data are whole").swap_remove(0)
    }

    fn with_line(unit_price: &str, quantity: i32, discount: &str) -> Order {
        let line = Line { product: 1, unit_price: exact(unit_price), quantity, discount: exact(discount) };
        Order { lines: vec![line], ..order() }
    }

    #[test]
    fn the_whole_book_is_worth_what_is_known() {
        let book = all_orders().expect("the example data are whole");
        assert_eq!(book.iter().map(value_after_discount).sum::<Decimal>(), exact("1265793.0395"));
        assert_eq!(book.iter().map(|order| price(order).total).sum::<Decimal>(), exact("1265793.22"));
        assert_eq!(book.iter().map(|order| price(order).gross).sum::<Decimal>(), exact("1354458.59"));
    }

    #[test]
    fn cents_are_rounded_half_up() {
        for (unit_price, quantity, discount, total) in
            [("0.01", 1, "0.5", "0.01"), ("0.10", 1, "0.15", "0.09"), ("0.11", 1, "0.05", "0.10"), ("3", 2, "0", "6.00")]
        {
            let priced = price(&with_line(unit_price, quantity, discount));
            assert_eq!(priced.total.to_string(), total, "{unit_price} * {quantity} less {discount}");
        }
    }

    #[test]
    fn every_order_of_the_book_is_well_formed() {
        for order in all_orders().expect("the example data are whole") {
            assert_eq!(check(&order), Ok(()));
        }
    }

    #[test]
    fn whatever_is_wrong_with_an_order_is_named() {
        let cases = [
            (Order { customer: None, ..order() }, "has no customer"),
            (Order { customer: Some(" ".into()), ..order() }, "has no customer"),
            (Order { ship_country: None, ..order() }, "has no receiver"),
            (Order { lines: vec![], ..order() }, "has no lines"),
            (Order { freight: exact("-1"), ..order() }, "freight is -1"),
            (with_line("-0.01", 1, "0"), "unit price is -0.01"),
            (with_line("1", 0, "0"), "quantity is 0"),
            (with_line("1", -3, "0"), "quantity is -3"),
            (with_line("1", 1, "1.01"), "discount is 1.01"),
            (with_line("1", 1, "-0.1"), "discount is -0.1"),
            (Order { ordered: None, ..order() }, "has no order date"),
            (Order { ordered: Some("1996-02-30 00:00:00.000".into()), ..order() }, "order date is 1996-02-30"),
            (Order { required: Some("soon".into()), ..order() }, "required date is soon"),
            (Order { required: Some("1990-01-01 00:00:00.000".into()), ..order() }, "required date is 1990"),
            (Order { shipped: Some("1990-01-01 00:00:00.000".into()), ..order() }, "shipping date is 1990"),
        ];
        for (order, expected) in cases {
            let message = check(&order).expect_err(expected).to_string();
            assert!(message.contains(expected), "{message} does not say: {expected}");
        }
        assert_eq!(check(&Order { shipped: None, ..order() }), Ok(()), "an order need not be shipped yet");
    }
}
