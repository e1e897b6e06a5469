//! Reduces a random case to its smallest form that still shows the same defect.

/// Returns a smaller form of `case`: repeatedly the first of the `candidates` whose kind is the same as that of `case`,
/// until no candidate has it. `kind` tells how a case fails; `None`: it does not. A case that does not fail is returned
/// unchanged.
pub fn smallest<T, K: PartialEq, C: IntoIterator<Item = T>>(
    case: T,
    candidates: impl Fn(&T) -> C,
    mut kind: impl FnMut(&T) -> Option<K>,
) -> T {
    let Some(wanted) = kind(&case) else { return case };
    let mut least = case;
    while let Some(smaller) = candidates(&least).into_iter().find(|one| kind(one).as_ref() == Some(&wanted)) {
        least = smaller;
    }
    least
}

/// The kind of a failure by its description: its first four words without numbers.
pub fn kind_of(description: &str) -> String {
    let words = description.split(' ').filter(|word| word.chars().all(char::is_alphabetic));
    words.take(4).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_otherwise_is_no_smaller_form() {
        // A list fails if it has a 3, and otherwise if it has two numbers.
        let kind = |list: &Vec<u32>| match list[..] {
            _ if list.contains(&3) => Some("three"),
            [_, _] => Some("two"),
            _ => None,
        };
        let without_one = |list: &Vec<u32>| {
            let list = list.clone();
            (0..list.len()).map(move |at| [&list[..at], &list[at + 1..]].concat())
        };
        assert_eq!(smallest(vec![1, 3, 2, 3], without_one, kind), [3]);
        assert_eq!(smallest(vec![1, 2], without_one, kind), [1, 2]);
        assert_eq!(smallest(vec![1, 2, 4], without_one, kind), [1, 2, 4], "it does not fail");
    }

    #[test]
    fn numbers_do_not_change_the_kind() {
        assert_eq!(kind_of("3 flows are still held 10s after all others"), "flows are still held");
        assert_eq!(kind_of("12 flows are still held"), kind_of("1 flows are still held (ecmp)"));
    }
}
