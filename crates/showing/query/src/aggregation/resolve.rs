//! Expressions of a query, as the parser gives them, over the columns of calls.

use std::fmt::Write as _;

use everycall_export::parse_function;
use regex::Regex;
use sqlite3_parser::ast::{Expr, LikeOperator, Literal, Operator, UnaryOperator};

use super::expression::{Arithmetic, Cell, Column, Comparison, Expression, Kind, Pattern, Texts};

/// Left to SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotHere;

/// A resolved expression, and the type of its values; `None` if it is always null.
pub(super) type Typed = (Expression, Option<Kind>);

/// A column of the query's result: its name and its expression.
pub(super) struct Alias<'q> {
    pub(super) name: Option<String>,
    pub(super) expression: &'q Expr<'q>,
}

/// Names that expressions may have.
pub(super) struct Scope<'q> {
    /// The table's name in the query.
    pub(super) table: String,
    /// The query's result. Columns of the table are before columns of the result.
    pub(super) aliases: Vec<Alias<'q>>,
}

impl<'q> Scope<'q> {
    /// The expression of the result's column with this name.
    pub(super) fn alias(&self, name: &str) -> Option<&'q Expr<'q>> {
        let named =
            |alias: &&Alias<'q>| alias.name.as_deref().is_some_and(|known| known.eq_ignore_ascii_case(name));
        self.aliases.iter().find(named).map(|alias| alias.expression)
    }

    /// The table's column that an expression is.
    pub(super) fn column(&self, expression: &Expr<'_>) -> Option<Column> {
        match expression {
            Expr::Qualified(table, name) if plain(table.0).eq_ignore_ascii_case(&self.table) => {
                Column::named(&plain(name.0))
            }
            _ => Column::named(&name_of(expression)?),
        }
    }
}

/// The name that an expression is.
pub(super) fn name_of(expression: &Expr<'_>) -> Option<String> {
    match expression {
        Expr::Id(id) => Some(plain(id.0)),
        Expr::Name(name) => Some(plain(name.0)),
        _ => None,
    }
}

/// A name without its quotes.
pub(super) fn plain(name: &str) -> String {
    let mut inner = name.chars();
    let end = match inner.next() {
        Some(quote @ ('"' | '`' | '\'')) => quote,
        Some('[') => ']',
        _ => return name.to_owned(),
    };
    inner.next_back();
    inner.as_str().replace(&format!("{end}{end}"), &end.to_string())
}

/// Resolves expressions; their texts get numbers.
pub(super) struct Resolver<'s, 'q> {
    pub(super) scope: &'s Scope<'q>,
    pub(super) texts: &'s mut Texts,
}

impl Resolver<'_, '_> {
    /// The expression, if it and all of its values are known here.
    pub(super) fn typed(&mut self, expression: &Expr<'_>) -> Result<Typed, NotHere> {
        if let Some(column) = self.scope.column(expression) {
            return Ok((Expression::Column(column), Some(column.kind())));
        }
        if let Some(name) = name_of(expression) {
            return self.aliased(&name);
        }
        Ok(match expression {
            Expr::Literal(literal) => self.literal(literal)?,
            Expr::Parenthesized(parts) => match parts.as_slice() {
                [one] => self.typed(one)?,
                _ => return Err(NotHere),
            },
            Expr::Unary(UnaryOperator::Positive, part) => self.typed(part)?,
            Expr::Unary(UnaryOperator::Negative, part) => match self.integer(part)? {
                Expression::Constant(Cell::Integer(value)) => {
                    (Expression::Constant(Cell::Integer(value.checked_neg().ok_or(NotHere)?)), INTEGER)
                }
                part => (Expression::Negative(Box::new(part)), INTEGER),
            },
            Expr::Unary(UnaryOperator::Not, part) => {
                (Expression::Not(Box::new(self.integer(part)?)), INTEGER)
            }
            Expr::Binary(left, operator, right) => (self.binary(left, *operator, right)?, INTEGER),
            Expr::IsNull(part) => (self.is_null(part)?, INTEGER),
            Expr::NotNull(part) => (Expression::Not(Box::new(self.is_null(part)?)), INTEGER),
            Expr::Between { lhs, not, start, end } => {
                let low = self.compared(lhs, Comparison::GreaterOrEqual, start)?;
                let high = self.compared(lhs, Comparison::LessOrEqual, end)?;
                (negated(Expression::And(Box::new((low, high))), *not), INTEGER)
            }
            Expr::InList { lhs, not, rhs } => {
                let (left, kind) = self.typed(lhs)?;
                let mut cells = Vec::new();
                for one in rhs.unwrap_or_default() {
                    match self.typed(one)? {
                        (Expression::Constant(cell), known) if known.is_some() && known == kind => {
                            cells.push(cell);
                        }
                        _ => return Err(NotHere),
                    }
                }
                (negated(Expression::OneOf(Box::new(left), cells), *not), INTEGER)
            }
            Expr::Like { lhs, not, op, rhs, escape: None } => {
                let Expr::Literal(Literal::String(pattern)) = rhs else { return Err(NotHere) };
                let (left, kind) = self.typed(lhs)?;
                let pattern = match op {
                    LikeOperator::Like => like(&plain(pattern))?,
                    LikeOperator::Regexp => {
                        let text = plain(pattern);
                        let regex = parse_function(&text).map_err(|_| NotHere)?;
                        Pattern::new(format!("regexp {text}"), regex)
                    }
                    LikeOperator::Glob | LikeOperator::Match => return Err(NotHere),
                };
                if kind != Some(Kind::Text) {
                    return Err(NotHere);
                }
                (negated(Expression::Matches(Box::new(left), pattern), *not), INTEGER)
            }
            Expr::Case { base, when_then_pairs, else_expr } => {
                let mut cases = Vec::new();
                let mut kinds = Vec::new();
                for (condition, result) in *when_then_pairs {
                    let condition = match base {
                        Some(base) => self.compared(base, Comparison::Equal, condition)?,
                        None => self.integer(condition)?,
                    };
                    let (result, kind) = self.typed(result)?;
                    kinds.push(kind);
                    cases.push((condition, result));
                }
                let (otherwise, kind) = match else_expr {
                    Some(otherwise) => self.typed(otherwise)?,
                    None => (Expression::Constant(Cell::Null), None),
                };
                kinds.push(kind);
                (Expression::Case(cases, Box::new(otherwise)), one_kind(&kinds)?)
            }
            Expr::FunctionCall {
                name,
                distinctness: None,
                args: Some(args),
                order_by: None,
                filter_over: None,
            } if ["coalesce", "ifnull"].iter().any(|known| known.eq_ignore_ascii_case(name.0)) => {
                let typed: Vec<Typed> = args.iter().map(|one| self.typed(one)).collect::<Result<_, _>>()?;
                let (parts, kinds): (Vec<_>, Vec<_>) = typed.into_iter().unzip();
                (Expression::First(parts), one_kind(&kinds)?)
            }
            _ => return Err(NotHere),
        })
    }

    /// An expression of integers, such as a condition.
    pub(super) fn integer(&mut self, expression: &Expr<'_>) -> Result<Expression, NotHere> {
        match self.typed(expression)? {
            (expression, Some(Kind::Integer)) => Ok(expression),
            _ => Err(NotHere),
        }
    }

    fn aliased(&mut self, name: &str) -> Result<Typed, NotHere> {
        // An alias isn't seen by the expression that it names.
        let expression = self.scope.alias(name).ok_or(NotHere)?;
        let none = Scope { table: self.scope.table.clone(), aliases: Vec::new() };
        Resolver { scope: &none, texts: self.texts }.typed(expression)
    }

    fn literal(&mut self, literal: &Literal<'_>) -> Result<Typed, NotHere> {
        Ok(match literal {
            Literal::Numeric(digits) => {
                let value = digits.parse().map_err(|_| NotHere)?;
                (Expression::Constant(Cell::Integer(value)), INTEGER)
            }
            Literal::String(text) => (Expression::Constant(self.texts.cell(&plain(text))), Some(Kind::Text)),
            Literal::Null => (Expression::Constant(Cell::Null), None),
            _ => return Err(NotHere),
        })
    }

    fn is_null(&mut self, part: &Expr<'_>) -> Result<Expression, NotHere> {
        let (part, _) = self.typed(part)?;
        Ok(Expression::Same(Box::new((part, Expression::Constant(Cell::Null)))))
    }

    fn binary(
        &mut self,
        left: &Expr<'_>,
        operator: Operator,
        right: &Expr<'_>,
    ) -> Result<Expression, NotHere> {
        let arithmetic = |how| move |parts| Expression::Arithmetic(how, parts);
        let of_integers: &dyn Fn(Box<(Expression, Expression)>) -> Expression = match operator {
            Operator::Add => &arithmetic(Arithmetic::Add),
            Operator::Subtract => &arithmetic(Arithmetic::Subtract),
            Operator::Multiply => &arithmetic(Arithmetic::Multiply),
            Operator::Divide => &arithmetic(Arithmetic::Divide),
            Operator::Modulus => &arithmetic(Arithmetic::Remainder),
            Operator::And => &Expression::And,
            Operator::Or => &Expression::Or,
            Operator::Equals => return self.compared(left, Comparison::Equal, right),
            Operator::NotEquals => return self.compared(left, Comparison::NotEqual, right),
            Operator::Less => return self.compared(left, Comparison::Less, right),
            Operator::LessEquals => return self.compared(left, Comparison::LessOrEqual, right),
            Operator::Greater => return self.compared(left, Comparison::Greater, right),
            Operator::GreaterEquals => return self.compared(left, Comparison::GreaterOrEqual, right),
            Operator::Is | Operator::IsNot => {
                let (left, of_left) = self.typed(left)?;
                let (right, of_right) = self.typed(right)?;
                one_kind(&[of_left, of_right])?;
                let same = Expression::Same(Box::new((left, right)));
                return Ok(negated(same, operator == Operator::IsNot));
            }
            _ => return Err(NotHere),
        };
        Ok(of_integers(Box::new((self.integer(left)?, self.integer(right)?))))
    }

    /// A comparison of two values of one type, or of an integer with a number that isn't one.
    fn compared(
        &mut self,
        left: &Expr<'_>,
        how: Comparison,
        right: &Expr<'_>,
    ) -> Result<Expression, NotHere> {
        if let Some(number) = real(right) {
            let left = self.integer(left)?;
            let (how, number) = with_integer(how, number)?;
            let right = Expression::Constant(Cell::Integer(number));
            return Ok(Expression::Compare(how, Box::new((left, right))));
        }
        let (left, of_left) = self.typed(left)?;
        let (right, of_right) = self.typed(right)?;
        one_kind(&[of_left, of_right])?;
        Ok(Expression::Compare(how, Box::new((left, right))))
    }
}

const INTEGER: Option<Kind> = Some(Kind::Integer);

fn negated(expression: Expression, not: bool) -> Expression {
    if not { Expression::Not(Box::new(expression)) } else { expression }
}

/// The type that all have which aren't null.
fn one_kind(kinds: &[Option<Kind>]) -> Result<Option<Kind>, NotHere> {
    let mut known = kinds.iter().flatten();
    let first = known.next();
    if known.all(|kind| Some(kind) == first) { Ok(first.copied()) } else { Err(NotHere) }
}

/// A number with a point or an exponent.
fn real(expression: &Expr<'_>) -> Option<f64> {
    match expression {
        Expr::Literal(Literal::Numeric(digits)) if digits.parse::<i64>().is_err() => digits.parse().ok(),
        Expr::Unary(UnaryOperator::Negative, part) => real(part).map(|number| -number),
        _ => None,
    }
}

/// A comparison of integers that holds where that with `number` does.
fn with_integer(how: Comparison, number: f64) -> Result<(Comparison, i64), NotHere> {
    // Within these, each integer that is compared has a real of its own.
    const LARGEST: f64 = 9_007_199_254_740_992.0;
    if !(-LARGEST..=LARGEST).contains(&number) {
        return Err(NotHere);
    }
    match how {
        Comparison::Less | Comparison::GreaterOrEqual => Ok((how, number.ceil() as i64)),
        Comparison::LessOrEqual | Comparison::Greater => Ok((how, number.floor() as i64)),
        Comparison::Equal | Comparison::NotEqual if number.fract() == 0.0 => Ok((how, number as i64)),
        Comparison::Equal | Comparison::NotEqual => Err(NotHere),
    }
}

/// A pattern of `like`: letters of ASCII match in both cases.
fn like(pattern: &str) -> Result<Pattern, NotHere> {
    let mut text = "(?s)\\A".to_owned();
    for letter in pattern.chars() {
        match letter {
            '%' => text.push_str(".*"),
            '_' => text.push('.'),
            _ if letter.is_ascii_alphabetic() => {
                let _ = write!(text, "[{}{}]", letter.to_ascii_lowercase(), letter.to_ascii_uppercase());
            }
            _ => text.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4]))),
        }
    }
    text.push_str("\\z");
    let regex = Regex::new(&text).map_err(|_| NotHere)?;
    Ok(Pattern::new(format!("like {pattern}"), regex))
}
