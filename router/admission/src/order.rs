//! Where a user's oldest waiting request stands among those of the others.

use std::cmp::Ordering;

/// A place in the fairness order; the least goes first.
///
/// What a second of waiting is worth is the same for everybody. So that the order need not be made anew as time passes,
/// the wait is not subtracted, but the moment of arrival added: both compare alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// Use per weight, plus ageing times the moment of arrival. Never NaN: it is made of finite numbers.
    pub(crate) priority: f64,
    /// Nobody known; last among equals.
    pub(crate) anonymous: bool,
    /// Numbers arrivals; no two are the same.
    pub(crate) arrival: u64,
    /// Whose request it is.
    pub(crate) account: u32,
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> Ordering {
        self.priority
            .total_cmp(&other.priority)
            .then(self.anonymous.cmp(&other.anonymous))
            .then(self.arrival.cmp(&other.arrival))
            .then(self.account.cmp(&other.account))
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Position {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Position {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn position() -> impl Strategy<Value = Position> {
        // Few values, so that ties are common.
        let priority =
            prop_oneof![(0_u8..3).prop_map(f64::from), any::<f64>().prop_filter("finite", |p| p.is_finite())];
        (priority, any::<bool>(), 0_u64..4, 0_u32..3).prop_map(|(priority, anonymous, arrival, account)| {
            Position { priority, anonymous, arrival, account }
        })
    }

    proptest! {
        #[test]
        fn the_order_is_total(a in position(), b in position(), c in position()) {
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            prop_assert_eq!(a.cmp(&b) == Ordering::Equal, a == b);
            if a <= b && b <= c {
                prop_assert!(a <= c);
            }
            if a < b && b < c {
                prop_assert!(a < c);
            }
        }
    }
}
