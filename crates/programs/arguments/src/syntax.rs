//! Functions with values, and conditions, as users write them.
//!
//! ```text
//! request    = function [ "(" value { "," value } ")" ] [ "if" condition ]
//! value      = [ name "=" ] condition
//! condition  = conjunction { "or" conjunction };  conjunction = negation { "and" negation }
//! negation   = [ "not" ] sum [ comparison sum ];  comparison = "==" | "<" | "contains" | ...
//! unary      = { "-" | "*" | "&" } postfix [ ":" type [ "[" length "]" ] ]
//! postfix    = primary { ("." | "->") name | "[" value "]" }
//! primary    = name | argN ":" type | fpargN ":" type | number | text | "null" | "(" condition ")"
//! ```

use std::ops::Range;

use crate::error::ArgumentError;

/// Nested deeper than this, an expression is refused.
const DEPTH_MAX: usize = 20;

/// A function with the values that are to be copied at its calls, and a condition on these.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The pattern of the functions, as it was written.
    pub function: String,
    /// The values; `None` for all parameters.
    pub values: Option<Vec<Expression>>,
    /// Calls for which this is false aren't recorded.
    pub condition: Option<Expression>,
}

/// An expression, and where it stands in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    /// What it is.
    pub node: Node,
    /// Where it stands.
    pub span: Range<usize>,
    /// As it was written.
    pub text: String,
}

/// Kinds of expressions.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// An integer.
    Number(i128),
    /// A number with a point.
    Float(f64),
    /// A text in quotes.
    Text(Vec<u8>),
    /// `null`.
    Null,
    /// `true` and `false`.
    Bool(bool),
    /// A parameter, a member of `this`, or an enumerator.
    Name(String),
    /// `arg1:int`, counted from 1.
    Argument {
        /// From 1.
        number: u32,
        /// Whether it is counted among the floating-point arguments.
        is_float: bool,
        /// The type's name.
        type_name: String,
    },
    /// `value:type`, and `pointer:str[length]`.
    Typed {
        /// The value, whose own type doesn't count.
        value: Box<Expression>,
        /// The type's name.
        type_name: String,
        /// How many bytes a text has.
        length: Option<Box<Expression>>,
    },
    /// `name = value`, as a value of a function.
    Named(String, Box<Expression>),
    /// `returned`.
    Result,
    /// `a.b` and `a->b`.
    Member(Box<Expression>, String),
    /// `a[b]`.
    Index(Box<Expression>, Box<Expression>),
    /// `*a`.
    Follow(Box<Expression>),
    /// `&a`.
    Address(Box<Expression>),
    /// `-a`.
    Negative(Box<Expression>),
    /// `not a`.
    Not(Box<Expression>),
    /// Two operands.
    Binary(Operator, Box<Expression>, Box<Expression>),
}

/// Operators with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Contains,
    StartsWith,
    BitOr,
    BitXor,
    BitAnd,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    Rest,
}

/// Operators by how tightly they bind, the loosest first.
const LEVELS: [&[(&str, Operator)]; 8] = [
    &[("or", Operator::Or)],
    &[("and", Operator::And)],
    &[
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessEqual),
        (">=", Operator::GreaterEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
        ("contains", Operator::Contains),
        ("starts", Operator::StartsWith),
    ],
    &[("|", Operator::BitOr), ("^", Operator::BitXor)],
    &[("&", Operator::BitAnd)],
    &[("<<", Operator::ShiftLeft), (">>", Operator::ShiftRight)],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
    &[("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Rest)],
];
const COMPARISONS: usize = 2;

impl Request {
    /// Reads a function with values and a condition.
    ///
    /// # Errors
    ///
    /// Where it isn't one, with what to write instead if it is another tool's spelling.
    pub fn parse(text: &str) -> Result<Self, ArgumentError> {
        if let Some(at) = text.find('@') {
            return Err(of_uftrace(text, at));
        }
        let (head, condition) = match split_condition(text) {
            Some((end, begin)) => {
                let mut parser = Parser::new(text, begin)?;
                let condition = parser.whole()?;
                (&text[..end], Some(condition))
            }
            None => (text, None),
        };
        let trimmed = head.trim_end();
        let (function, values) = match trimmed.ends_with(')').then(|| opening(trimmed)).flatten() {
            Some(open) => {
                let mut parser = Parser::new(trimmed, open + 1)?;
                let values = parser.values(trimmed.len() - 1)?;
                (&trimmed[..open], Some(values))
            }
            None => (trimmed, None),
        };
        let function = function.trim();
        if function.is_empty() {
            return Err(ArgumentError::new(text, 0..text.len(), "no function is named")
                .with_help("write a function and its values, as in handle(path, len)"));
        }
        Ok(Self { function: function.to_owned(), values, condition })
    }
}

impl Expression {
    /// Reads a value or a condition.
    ///
    /// # Errors
    ///
    /// Where it isn't one.
    pub fn parse(text: &str) -> Result<Self, ArgumentError> {
        Parser::new(text, 0)?.whole()
    }
}

/// `f@arg1/i32,arg2/s` of uftrace.
fn of_uftrace(text: &str, at: usize) -> ArgumentError {
    let function = text[..at].trim();
    let mut values = Vec::new();
    let mut result = false;
    for part in text[at + 1..].split(',') {
        let (name, format) = part.trim().split_once(['/', '%']).unwrap_or((part.trim(), "i64"));
        if name == "retval" {
            result = true;
        } else if name.starts_with("arg") || name.starts_with("fparg") {
            values.push(format!("{name}:{}", type_of_uftrace(format, name.starts_with("fp"))));
        }
    }
    let error = ArgumentError::new(text, at..text.len(), "this is uftrace's spelling");
    let call = format!("{function}({})", values.join(", "));
    match (values.is_empty(), result) {
        (true, true) => error.with_help(format!("write --results '{function}'")),
        (true, false) => error.with_help(format!("write {function}(...) if ..., with names of parameters")),
        (false, true) => error.with_help(format!("write --args '{call}' --results '{function}'")),
        (false, false) => error.with_help(format!("write {call}, or {function} for all by their types")),
    }
}

/// The name here of one of uftrace's formats.
fn type_of_uftrace(format: &str, is_float: bool) -> String {
    let letters = format.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let bits = &format[letters.len()..];
    match letters {
        "s" | "S" => "str".to_owned(),
        "f" => format!("f{}", if bits.is_empty() { "64" } else { bits }),
        _ if is_float => "f64".to_owned(),
        "x" | "o" | "p" => "hex".to_owned(),
        "c" => "char".to_owned(),
        "u" => format!("u{}", if bits.is_empty() { "64" } else { bits }),
        _ => format!("i{}", if bits.is_empty() { "64" } else { bits }),
    }
}

/// The end of what comes before a word `if`, and the begin of what comes after it.
fn split_condition(text: &str) -> Option<(usize, usize)> {
    let mut depth = 0_i32;
    let mut is_quoted = false;
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b'(' => depth += 1,
            b')' => depth -= 1,
            b'i' if depth == 0 && bytes[at..].starts_with(b"if") => {
                let before = at.checked_sub(1).map(|before| bytes[before]);
                let after = bytes.get(at + 2).copied();
                let is_space = |byte: Option<u8>| byte.is_none_or(|byte| byte == b' ' || byte == b'(');
                if matches!(before, Some(b' ' | b')')) && is_space(after) {
                    return Some((at, at + 2));
                }
            }
            _ => {}
        }
    }
    None
}

/// The parenthesis that the last one closes.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut is_quoted = false;
    for (at, byte) in text.bytes().enumerate().rev() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(i128),
    Float(f64),
    Text(Vec<u8>),
    Word(String),
    Sign(&'static str),
}

const SIGNS: [&str; 29] = [
    "->", "==", "!=", "<=", ">=", "<<", ">>", "&&", "||", "(", ")", "[", "]", ",", ".", "<", ">", "|", "^",
    "&", "+", "-", "*", "/", "%", "!", ":", "=", "~",
];

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<(Token, Range<usize>)>,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str, from: usize) -> Result<Self, ArgumentError> {
        Ok(Self { text, tokens: tokens(text, from)?, at: 0, depth: 0 })
    }

    fn whole(&mut self) -> Result<Expression, ArgumentError> {
        let all = self.level(0)?;
        match self.tokens.get(self.at) {
            None => Ok(all),
            Some((token, span)) => Err(self.unexpected(Some(token), span.clone())),
        }
    }

    /// Values with commas, up to the parenthesis at `end`.
    fn values(&mut self, end: usize) -> Result<Vec<Expression>, ArgumentError> {
        let mut values = Vec::new();
        if self.tokens.len() == 1 {
            return Ok(values);
        }
        loop {
            values.push(self.named_value()?);
            match self.tokens.get(self.at) {
                Some((Token::Sign(","), _)) => self.at += 1,
                Some((Token::Sign(")"), span)) if span.start == end => return Ok(values),
                Some((token, span)) => return Err(self.unexpected(Some(token), span.clone())),
                None => return Err(self.unexpected(None, end..end)),
            }
        }
    }

    fn named_value(&mut self) -> Result<Expression, ArgumentError> {
        let start = self.here().start;
        let name = match (self.peek(), self.tokens.get(self.at + 1)) {
            (Some(Token::Word(name)), Some((Token::Sign("="), _))) => name.clone(),
            _ => return self.level(0),
        };
        self.at += 2;
        let value = self.level(0)?;
        Ok(self.make(Node::Named(name, Box::new(value)), start))
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Token::Sign(found)) if *found == sign)
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let is = self.is_sign(sign);
        self.at += usize::from(is);
        is
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is = matches!(self.peek(), Some(Token::Word(found)) if found == word);
        self.at += usize::from(is);
        is
    }

    fn here(&self) -> Range<usize> {
        let end = self.text.len();
        self.tokens.get(self.at).map_or(end..end, |(_, span)| span.clone())
    }

    fn error(&self, span: Range<usize>, message: impl Into<String>) -> ArgumentError {
        ArgumentError::new(self.text, span, message)
    }

    fn unexpected(&self, token: Option<&Token>, span: Range<usize>) -> ArgumentError {
        match token {
            None => self.error(span, "a value is missing here"),
            Some(Token::Sign(sign @ ("&&" | "||" | "!" | "="))) => {
                let instead = match *sign {
                    "&&" => "and",
                    "||" => "or",
                    "!" => "not",
                    _ => "==",
                };
                self.error(span, format!("`{sign}` isn't an operator here"))
                    .with_help(format!("write `{instead}`"))
            }
            Some(_) => {
                let found = self.text.get(span.clone()).unwrap_or_default().to_owned();
                self.error(span, format!("`{found}` isn't expected here"))
            }
        }
    }

    fn make(&self, node: Node, start: usize) -> Expression {
        let end =
            self.at.checked_sub(1).and_then(|last| self.tokens.get(last)).map_or(start, |last| last.1.end);
        let span = start..end.max(start);
        let text = self.text.get(span.clone()).unwrap_or_default().to_owned();
        Expression { node, span, text }
    }

    fn level(&mut self, level: usize) -> Result<Expression, ArgumentError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX * LEVELS.len() {
            return Err(self.error(self.here(), "this is nested too deeply"));
        }
        let result = self.level_inside(level);
        self.depth -= 1;
        result
    }

    fn level_inside(&mut self, level: usize) -> Result<Expression, ArgumentError> {
        let start = self.here().start;
        if level == COMPARISONS && self.take_word("not") {
            let operand = self.level(COMPARISONS)?;
            return Ok(self.make(Node::Not(Box::new(operand)), start));
        }
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.level(level + 1)?;
        while let Some(operator) = self.take_operator(operators)? {
            let right = self.level(level + 1)?;
            let node = Node::Binary(operator, Box::new(left), Box::new(right));
            left = self.make(node, start);
            if level == COMPARISONS {
                break;
            }
        }
        Ok(left)
    }

    fn take_operator(&mut self, operators: &[(&str, Operator)]) -> Result<Option<Operator>, ArgumentError> {
        let name = match self.peek() {
            Some(Token::Sign(sign)) => *sign,
            Some(Token::Word(word)) => word,
            _ => return Ok(None),
        };
        let Some((_, operator)) = operators.iter().find(|(known, _)| *known == name) else { return Ok(None) };
        let operator = *operator;
        self.at += 1;
        if operator == Operator::StartsWith && !self.take_word("with") {
            return Err(self.error(self.here(), "`with` is missing: starts with"));
        }
        Ok(Some(operator))
    }

    fn unary(&mut self) -> Result<Expression, ArgumentError> {
        let start = self.here().start;
        let value = self.signed()?;
        if !self.take_sign(":") {
            return Ok(value);
        }
        let type_name = self.type_name()?;
        let length = self.text_length(&type_name)?;
        Ok(self.make(Node::Typed { value: Box::new(value), type_name, length }, start))
    }

    /// The `[length]` of a text.
    fn text_length(&mut self, type_name: &str) -> Result<Option<Box<Expression>>, ArgumentError> {
        if !matches!(type_name, "str" | "sockaddr") || !self.take_sign("[") {
            return Ok(None);
        }
        let length = self.level(0)?;
        if !self.take_sign("]") {
            return Err(self.error(self.here(), "`]` is missing here"));
        }
        Ok(Some(Box::new(length)))
    }

    fn type_name(&mut self) -> Result<String, ArgumentError> {
        let Some(Token::Word(name)) = self.peek().cloned() else {
            return Err(self.error(self.here(), "a type is missing here, such as int, str, f64 or hex"));
        };
        self.at += 1;
        Ok(name)
    }

    fn signed(&mut self) -> Result<Expression, ArgumentError> {
        let start = self.here().start;
        let make: fn(Box<Expression>) -> Node = match self.peek() {
            Some(Token::Sign("-")) => Node::Negative,
            Some(Token::Sign("*")) => Node::Follow,
            Some(Token::Sign("&")) => Node::Address,
            _ => return self.postfix(),
        };
        self.at += 1;
        self.depth += LEVELS.len();
        if self.depth > DEPTH_MAX * LEVELS.len() {
            return Err(self.error(self.here(), "this is nested too deeply"));
        }
        let operand = self.signed()?;
        self.depth -= LEVELS.len();
        // A negative number is a number.
        let node = match make(Box::new(operand)) {
            Node::Negative(inner) => match inner.node {
                Node::Number(number) => Node::Number(-number),
                Node::Float(number) => Node::Float(-number),
                _ => Node::Negative(inner),
            },
            node => node,
        };
        Ok(self.make(node, start))
    }

    fn postfix(&mut self) -> Result<Expression, ArgumentError> {
        let start = self.here().start;
        let mut value = self.primary()?;
        loop {
            if self.take_sign(".") || self.take_sign("->") {
                let Some(Token::Word(name)) = self.peek().cloned() else {
                    return Err(self.error(self.here(), "a member's name is missing here"));
                };
                if matches!(&value.node, Node::Name(args) if args == "args") {
                    let span = start..self.here().end;
                    return Err(self
                        .error(span, "this is bpftrace's spelling")
                        .with_help(format!("write `{name}`")));
                }
                self.at += 1;
                value = self.make(Node::Member(Box::new(value), name), start);
            } else if self.take_sign("[") {
                let index = self.level(0)?;
                if !self.take_sign("]") {
                    return Err(self.error(self.here(), "`]` is missing here"));
                }
                value = self.make(Node::Index(Box::new(value), Box::new(index)), start);
            } else {
                return Ok(value);
            }
        }
    }

    fn primary(&mut self) -> Result<Expression, ArgumentError> {
        let span = self.here();
        let Some(token) = self.peek().cloned() else { return Err(self.unexpected(None, span)) };
        self.at += 1;
        let node = match token {
            Token::Number(number) => Node::Number(number),
            Token::Float(number) => Node::Float(number),
            Token::Text(text) => Node::Text(text),
            Token::Word(word) => self.word(word, span.clone())?,
            Token::Sign("(") => {
                let mut inner = self.level(0)?;
                if !self.take_sign(")") {
                    return Err(self.error(self.here(), "`)` is missing here"));
                }
                inner.span = span.start..self.here().start;
                return Ok(inner);
            }
            token => {
                self.at -= 1;
                return Err(self.unexpected(Some(&token), span));
            }
        };
        Ok(self.make(node, span.start))
    }

    fn word(&mut self, word: String, span: Range<usize>) -> Result<Node, ArgumentError> {
        match word.as_str() {
            "null" | "NULL" | "nullptr" => return Ok(Node::Null),
            "true" => return Ok(Node::Bool(true)),
            "false" => return Ok(Node::Bool(false)),
            "returned" => return Ok(Node::Result),
            "retval" | "$retval" => {
                return Err(self
                    .error(span, format!("`{word}` is another tool's name"))
                    .with_help("write `returned`"));
            }
            "str" if self.is_sign("(") => {
                return Err(self
                    .error(span, "this is bpftrace's spelling")
                    .with_help("texts are copied as texts: write the parameter alone"));
            }
            _ => {}
        }
        let (digits, is_float) = match (word.strip_prefix("arg"), word.strip_prefix("fparg")) {
            (_, Some(digits)) => (digits, true),
            (Some(digits), None) => (digits, false),
            _ => return Ok(Node::Name(word)),
        };
        let Ok(number) = digits.parse::<u32>() else { return Ok(Node::Name(word)) };
        let prefix = if is_float { "fparg" } else { "arg" };
        if number == 0 {
            return Err(self
                .error(span, "arguments are counted from 1")
                .with_help(format!("write `{prefix}1:int` for the first one, or its name")));
        }
        if self.is_sign("/") || self.is_sign("%") {
            let format = match self.tokens.get(self.at + 1) {
                Some((Token::Word(word), _)) => word.clone(),
                _ => String::new(),
            };
            let is_format = format.len() <= 3 && format.starts_with(|letter| "diuxoscfSpe".contains(letter));
            if is_format {
                let end = self.tokens.get(self.at + 1).map_or(span.end, |next| next.1.end);
                let name = type_of_uftrace(&format, is_float);
                return Err(self
                    .error(span.start..end, "this is uftrace's spelling")
                    .with_help(format!("write `{word}:{name}`")));
            }
        }
        if !self.take_sign(":") {
            let example = if is_float { "f64" } else { "int" };
            return Err(self.error(span, format!("`{word}` has no type")).with_help(format!(
                "write a type behind it, as in `{word}:{example}`, or the parameter's name"
            )));
        }
        let type_name = self.type_name()?;
        let argument = Node::Argument { number, is_float, type_name: type_name.clone() };
        let value = self.make(argument.clone(), span.start);
        Ok(match self.text_length(&type_name)? {
            None => argument,
            length => Node::Typed { value: Box::new(value), type_name, length },
        })
    }
}

fn tokens(text: &str, from: usize) -> Result<Vec<(Token, Range<usize>)>, ArgumentError> {
    let mut tokens = Vec::new();
    let mut at = from;
    while let Some(first) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = &text[at..];
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
        let (token, length) = if first == '"' {
            quoted(text, at)?
        } else if first.is_ascii_digit() {
            number(text, at)?
        } else if is_letter(first) {
            let mut length = rest.find(|letter| !is_letter(letter)).unwrap_or(rest.len());
            // Names of enumerators may be qualified.
            while let Some(inner) = rest[length..].strip_prefix("::") {
                length += 2 + inner.find(|letter| !is_letter(letter)).unwrap_or(inner.len());
            }
            (Token::Word(rest[..length].to_owned()), length)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Token::Sign(sign), sign.len())
        } else {
            return Err(ArgumentError::new(
                text,
                at..at + first.len_utf8(),
                format!("`{first}` isn't expected here"),
            ));
        };
        tokens.push((token, at..at + length));
        at += length;
    }
    Ok(tokens)
}

fn quoted(text: &str, at: usize) -> Result<(Token, usize), ArgumentError> {
    let mut bytes = Vec::new();
    let mut letters = text[at + 1..].char_indices();
    while let Some((offset, letter)) = letters.next() {
        match letter {
            '"' => return Ok((Token::Text(bytes), offset + 2)),
            '\\' => match letters.next() {
                Some((_, 'n')) => bytes.push(b'\n'),
                Some((_, 't')) => bytes.push(b'\t'),
                Some((_, 'r')) => bytes.push(b'\r'),
                Some((_, other)) => bytes.extend(other.encode_utf8(&mut [0; 4]).bytes()),
                None => break,
            },
            _ => bytes.extend(letter.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    Err(ArgumentError::new(text, at..text.len(), "the text has no closing quote"))
}

fn number(text: &str, at: usize) -> Result<(Token, usize), ArgumentError> {
    let rest = &text[at..];
    let length = rest
        .char_indices()
        .find(|&(index, letter)| {
            let is_sign = matches!(letter, '+' | '-')
                && !rest.starts_with("0x")
                && index > 0
                && matches!(rest.as_bytes()[index - 1], b'e' | b'E');
            !(letter.is_alphanumeric() || letter == '_' || letter == '.' || is_sign)
        })
        .map_or(rest.len(), |(index, _)| index);
    let plain = rest[..length].replace('_', "");
    let integer = match plain.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => plain.parse().ok(),
    };
    let range = i128::from(i64::MIN)..=i128::from(u64::MAX);
    let token = match integer {
        Some(integer) if range.contains(&integer) => Token::Number(integer),
        _ => match plain.parse::<f64>() {
            Ok(float) if integer.is_none() && float.is_finite() => Token::Float(float),
            _ => {
                return Err(ArgumentError::new(
                    text,
                    at..at + length,
                    format!("`{}` isn't a number of at most 64 bits", &rest[..length]),
                ));
            }
        },
    };
    Ok((token, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> String {
        fn of(it: &Expression) -> String {
            match &it.node {
                Node::Binary(operator, left, right) => format!("({operator:?} {} {})", of(left), of(right)),
                Node::Not(inner) => format!("(Not {})", of(inner)),
                Node::Member(inner, name) => format!("{}.{name}", of(inner)),
                Node::Index(inner, index) => format!("{}[{}]", of(inner), of(index)),
                Node::Follow(inner) => format!("*{}", of(inner)),
                Node::Typed { value, type_name, length: None } => format!("({} as {type_name})", of(value)),
                Node::Typed { value, type_name, length: Some(length) } => {
                    format!("({} as {type_name} of {})", of(value), of(length))
                }
                Node::Argument { number, type_name, .. } => format!("{number}:{type_name}"),
                Node::Name(name) => name.clone(),
                Node::Number(number) => number.to_string(),
                Node::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
                other => format!("{other:?}"),
            }
        }
        of(&Expression::parse(text).unwrap())
    }

    #[test]
    fn operators_bind_as_expected() {
        assert_eq!(
            shape("req->method == \"POST\" and len > 4096 or not a"),
            "(Or (And (Equal req.method \"POST\") (Greater len 4096)) (Not a))"
        );
        assert_eq!(shape("a & 4 == 4"), "(Equal (BitAnd a 4) 4)");
        assert_eq!(shape("a - 1 - 2 * b"), "(Subtract (Subtract a 1) (Multiply 2 b))");
        assert_eq!(shape("*p.q[1]"), "*p.q[1]");
        assert_eq!(shape("not a == b"), "(Not (Equal a b))");
        assert_eq!(shape("path starts with \"/a\""), "(StartsWith path \"/a\")");
        assert_eq!(shape("x == -5"), "(Equal x -5)");
        assert_eq!(shape("*(arg2:ptr + 8):str"), "(*(Add 2:ptr 8) as str)");
        assert_eq!(shape("arg1:str[arg2:u64]"), "(1:str as str of 2:u64)");
        assert_eq!(shape("arg1:ptr[11][1]:str"), "(1:ptr[11][1] as str)");
        assert_eq!(shape("a->p:str[a->n + 1] == \"x\""), "(Equal (a.p as str of (Add a.n 1)) \"x\")");
    }

    #[test]
    fn requests_have_functions_values_and_conditions() {
        let it = Request::parse("ns::f<int>(path, req->method) if len > 1").unwrap();
        assert_eq!((it.function.as_str(), it.values.unwrap().len()), ("ns::f<int>", 2));
        assert!(it.condition.is_some());
        assert_eq!(Request::parse("handle_*").unwrap().values, None);
        assert_eq!(Request::parse("f()").unwrap().values, Some(Vec::new()));
        assert_eq!(Request::parse("gif(x)").unwrap().function, "gif");
        let it = Request::parse("f(key = *(arg2:ptr + 8):str, n)").unwrap().values.unwrap();
        assert!(matches!(&it[0].node, Node::Named(name, _) if name == "key"));
        let it = Request::parse("f(arg1:int, fparg2:f64)").unwrap();
        assert!(matches!(&it.values.unwrap()[1].node, Node::Argument { number: 2, is_float: true, .. }));
    }

    #[test]
    fn errors_point_at_the_place_and_say_what_to_write() {
        let said = |text: &str| Request::parse(text).unwrap_err().to_string();
        assert_eq!(
            said("f@arg1/i32,arg2/s"),
            "this is uftrace's spelling\n  f@arg1/i32,arg2/s\n   ^^^^^^^^^^^^^^^^\n  write f(arg1:i32, arg2:str), or f for all by their types"
        );
        for (text, part) in [
            ("f(args.path)", "write `path`"),
            ("f(arg0)", "counted from 1"),
            ("f(arg1)", "as in `arg1:int`"),
            ("f(arg1/s)", "write `arg1:str`"),
            ("f(str(path))", "write the parameter alone"),
            ("f(a) if a && b", "write `and`"),
            ("f(a) if a = b", "write `==`"),
            ("f(a:)", "a type is missing"),
            ("f(a:str[2)", "`]` is missing"),
            ("f(a) if retval < 0", "write `returned`"),
            ("f@retval", "--results 'f'"),
            ("f(a,)", "isn't expected"),
            ("f(a) if", "a value is missing"),
            ("f(a) if a == \"x", "no closing quote"),
            ("(a)", "no function"),
            ("f(99999999999999999999999)", "at most 64 bits"),
        ] {
            assert!(said(text).contains(part), "{text}: {}", said(text));
        }
    }

    #[test]
    fn no_text_is_too_much() {
        let mut number = 7_u64;
        let parts = [
            "(", ")", "a", "->", "[", "]", "\"", "if ", "not ", "-", "*", "é", "1", ".", " and ", "@", ",",
            "arg1", ":",
        ];
        for _ in 0..20_000 {
            let mut text = String::from("f(");
            for _ in 0..12 {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push_str(parts[(number >> 33) as usize % parts.len()]);
            }
            let _ = Request::parse(&text).map_err(|error| error.to_string());
            let _ = Expression::parse(&text).map_err(|error| error.to_string());
        }
        let deep = "(".repeat(100_000);
        assert!(Expression::parse(&deep).unwrap_err().to_string().contains("too deeply"));
        assert!(Expression::parse(&"-".repeat(100_000)).is_err());
    }
}
