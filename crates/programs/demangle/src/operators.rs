//! Operators by their two letters, in the ABI's order of kinds.

use crate::operators::Kind::{Binary, Call, Index, Member, NameOnly, Postfix, Prefix, Special, Word};

/// Where an operator's operands are placed in an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Prefix,
    Postfix,
    Binary,
    Index,
    Member,
    Call,
    /// Before an operand in parentheses.
    Word,
    /// Read by rules of its own.
    Special,
    /// Not in expressions.
    NameOnly,
}

const TABLE: &[(&[u8; 2], &str, Kind)] = &[
    (b"aN", "&=", Binary),
    (b"aS", "=", Binary),
    (b"aa", "&&", Binary),
    (b"ad", "&", Prefix),
    (b"an", "&", Binary),
    (b"at", "alignof ", Special),
    (b"aw", "co_await ", Prefix),
    (b"az", "alignof ", Special),
    (b"cc", "const_cast", Special),
    (b"cl", "()", Call),
    (b"cm", ",", Binary),
    (b"co", "~", Prefix),
    (b"dV", "/=", Binary),
    (b"dX", "[...]=", Special),
    (b"da", "delete[] ", Special),
    (b"dc", "dynamic_cast", Special),
    (b"de", "*", Prefix),
    (b"di", "=", Special),
    (b"dl", "delete ", Special),
    (b"ds", ".*", Member),
    (b"dt", ".", Member),
    (b"dv", "/", Binary),
    (b"dx", "]=", Special),
    (b"eO", "^=", Binary),
    (b"eo", "^", Binary),
    (b"eq", "==", Binary),
    (b"ge", ">=", Binary),
    (b"gs", "::", Special),
    (b"gt", ">", Binary),
    (b"ix", "[]", Index),
    (b"lS", "<<=", Binary),
    (b"le", "<=", Binary),
    (b"ls", "<<", Binary),
    (b"lt", "<", Binary),
    (b"mI", "-=", Binary),
    (b"mL", "*=", Binary),
    (b"mi", "-", Binary),
    (b"ml", "*", Binary),
    (b"mm", "--", Postfix),
    (b"na", "new[]", Special),
    (b"ne", "!=", Binary),
    (b"ng", "-", Prefix),
    (b"nt", "!", Prefix),
    (b"nw", "new", Special),
    (b"nx", "noexcept", Word),
    (b"oR", "|=", Binary),
    (b"oo", "||", Binary),
    (b"or", "|", Binary),
    (b"pL", "+=", Binary),
    (b"pl", "+", Binary),
    (b"pm", "->*", Binary),
    (b"pp", "++", Postfix),
    (b"ps", "+", Prefix),
    (b"pt", "->", Member),
    (b"qu", "?", Special),
    (b"rM", "%=", Binary),
    (b"rS", ">>=", Binary),
    (b"rc", "reinterpret_cast", Special),
    (b"rm", "%", Binary),
    (b"rs", ">>", Binary),
    (b"sP", "sizeof...", Special),
    (b"sZ", "sizeof...", Special),
    (b"sc", "static_cast", Special),
    (b"ss", "<=>", Binary),
    (b"st", "sizeof ", Special),
    (b"sz", "sizeof ", Special),
    (b"te", "typeid ", Special),
    (b"ti", "typeid ", Special),
    (b"tr", "throw", NameOnly),
    (b"tw", "throw ", Special),
];

/// The operator with these letters.
pub(crate) fn operator(letters: [u8; 2]) -> Option<(&'static str, Kind)> {
    let found = TABLE.binary_search_by(|(code, ..)| code.as_slice().cmp(&letters)).ok()?;
    TABLE.get(found).map(|&(_, text, kind)| (text, kind))
}

/// The operator that a function may be called after, without `operator`.
pub(crate) fn operator_name(letters: [u8; 2]) -> Option<&'static str> {
    Some(match &letters {
        b"nw" => " new",
        b"na" => " new[]",
        b"dl" => " delete",
        b"da" => " delete[]",
        b"aw" => " co_await",
        b"cl" => "()",
        b"ix" => "[]",
        b"qu" => "?",
        _ => match operator(letters)? {
            (text, Prefix | Postfix | Binary | Member) => text,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(TABLE.is_sorted_by_key(|(code, ..)| *code));
        assert_eq!(operator(*b"pl"), Some(("+", Binary)));
        assert_eq!(operator(*b"zz"), None);
        assert_eq!(operator_name(*b"sc"), None);
    }
}
