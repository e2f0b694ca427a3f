//! Finds out whether a query only adds up calls, and what of it remains for SQLite.

use sqlite3_parser::ast::{
    As, Cmd, Distinctness, Expr, FunctionTail, LikeOperator, Literal, NullsOrder, OneSelect, Operator,
    ResultColumn, Select, SelectTable, SortOrder, SortedColumn, Stmt, UnaryOperator,
};
use sqlite3_parser::lexer::sql::Parser;
use sqlite3_parser::{Bump, FallibleIterator as _};

use super::expression::{Depends, Expression, Kind, Texts};
use super::resolve::{Alias, NotHere, Resolver, Scope, Typed, name_of, plain};
use super::sums::{How, Sum};
use super::{Affinity, KEYS_MAX, SUMS_MAX, sum_column};

/// The table of calls.
const TABLE: &str = "slices";
/// Functions of one value that may stand around aggregates and keys.
const FUNCTIONS: [&str; 12] = [
    "round", "abs", "printf", "format", "coalesce", "ifnull", "nullif", "iif", "lower", "upper", "length",
    "substr",
];

/// A query that adds up calls.
pub(crate) struct Plan {
    /// All have to be true.
    pub(super) conditions: Vec<Expression>,
    pub(super) keys: Vec<Key>,
    pub(super) sums: Vec<Sum>,
    /// Whether there is one group, even of no call.
    pub(super) is_whole: bool,
    pub(super) texts: Texts,
    /// The rest of the query: one of the table of groups.
    pub(crate) rest: String,
}

/// A key of groups.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) expression: Expression,
    pub(super) affinity: Affinity,
}

/// The plan of a query that SQLite has understood; `groups` is the name of the table of groups.
/// `None` where the query isn't of this kind.
pub(crate) fn plan(query: &str, groups: &str) -> Option<Plan> {
    let bump = Bump::new();
    let mut parser = Parser::new(&bump, query.as_bytes());
    let Ok(Some(Cmd::Stmt(Stmt::Select(select)))) = parser.next() else { return None };
    planned(select, groups).ok()
}

fn planned<'q>(select: &'q Select<'q>, groups: &str) -> Result<Plan, NotHere> {
    let OneSelect::Select { distinctness, columns, from, where_clause, group_by, having, window_clause } =
        &select.body.select
    else {
        return Err(NotHere);
    };
    let is_plain = select.with.is_none()
        && select.body.compounds.is_none()
        && window_clause.is_none()
        && *distinctness != Some(Distinctness::Distinct);
    let from = from.as_ref().filter(|from| is_plain && from.joins.is_none()).ok_or(NotHere)?;
    let Some(SelectTable::Table(name, alias, None)) = from.select else { return Err(NotHere) };
    if name.db_name.is_some() || !plain(name.name.0).eq_ignore_ascii_case(TABLE) {
        return Err(NotHere);
    }
    let table = alias.as_ref().map_or_else(|| TABLE.to_owned(), alias_name);
    let mut aliases = Vec::new();
    for column in *columns {
        let ResultColumn::Expr(expression, name) = column else { return Err(NotHere) };
        aliases.push(Alias { name: name.as_ref().map(alias_name), expression });
    }
    let scope = Scope { table, aliases };
    let mut rest = Rest { scope: &scope, keys: Vec::new(), sums: Vec::new(), texts: Texts::default() };

    let mut conditions = Vec::new();
    if let Some(condition) = where_clause {
        rest.conditions(condition, &mut conditions)?;
    }
    for key in group_by.unwrap_or_default() {
        rest.key(key)?;
    }
    let mut text = "select ".to_owned();
    for (number, alias) in scope.aliases.iter().enumerate() {
        if number > 0 {
            text.push_str(", ");
        }
        text.push_str(&rest.written(alias.expression)?);
        if let Some(name) = &alias.name {
            text.push_str(&format!(" as {}", quoted(name)));
        }
    }
    text.push_str(&format!(" from {groups}"));
    if let Some(having) = having {
        text.push_str(&format!(" where {}", rest.written(having)?));
    }
    for (number, column) in select.order_by.unwrap_or_default().iter().enumerate() {
        text.push_str(if number == 0 { " order by " } else { ", " });
        text.push_str(&rest.order(column)?);
    }
    match select.limit {
        None => {}
        Some(limit) => match (&limit.expr, &limit.offset) {
            (Expr::Literal(Literal::Numeric(count)), None) => text.push_str(&format!(" limit {count}")),
            _ => return Err(NotHere),
        },
    }
    let Rest { keys, sums, texts, .. } = rest;
    let is_whole = group_by.is_none();
    if is_whole && sums.is_empty() {
        return Err(NotHere);
    }
    // The cheapest come first.
    conditions.sort_by_key(Expression::depends_on);
    Ok(Plan { conditions, keys, sums, is_whole, texts, rest: text })
}

fn alias_name(alias: &As<'_>) -> String {
    match alias {
        As::As(name) | As::Elided(name) => plain(name.0),
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The rest of a query for SQLite, and all that this needs of the groups.
struct Rest<'s, 'q> {
    scope: &'s Scope<'q>,
    keys: Vec<Key>,
    sums: Vec<Sum>,
    texts: Texts,
}

impl<'q> Rest<'_, 'q> {
    fn typed(&mut self, expression: &Expr<'_>) -> Result<Typed, NotHere> {
        Resolver { scope: self.scope, texts: &mut self.texts }.typed(expression)
    }

    fn integer(&mut self, expression: &Expr<'_>) -> Result<Expression, NotHere> {
        Resolver { scope: self.scope, texts: &mut self.texts }.integer(expression)
    }

    /// Adds the parts of a condition that have to be true.
    fn conditions(&mut self, condition: &Expr<'_>, all: &mut Vec<Expression>) -> Result<(), NotHere> {
        match condition {
            Expr::Binary(left, Operator::And, right) => {
                self.conditions(left, all)?;
                self.conditions(right, all)
            }
            Expr::Parenthesized(parts) if parts.len() == 1 => {
                parts.iter().try_for_each(|part| self.conditions(part, all))
            }
            _ => {
                all.push(self.integer(condition)?);
                Ok(())
            }
        }
    }

    fn key(&mut self, key: &Expr<'_>) -> Result<(), NotHere> {
        // A number is the place of a column of the result.
        let place = match key {
            Expr::Literal(Literal::Numeric(digits)) => {
                let place: usize = digits.parse().map_err(|_| NotHere)?;
                Some(self.scope.aliases.get(place.wrapping_sub(1)).ok_or(NotHere)?.expression)
            }
            _ => None,
        };
        let key = place.unwrap_or(key);
        let (expression, kind) = self.typed(key)?;
        if self.keys.len() == KEYS_MAX || expression.depends_on() == Depends::Nothing {
            return Err(NotHere);
        }
        let affinity = match (&expression, kind) {
            (Expression::Column(_), Some(Kind::Integer)) => Affinity::Integer,
            (Expression::Column(_), Some(Kind::Text)) => Affinity::Text,
            _ => Affinity::None,
        };
        self.keys.push(Key { expression, affinity });
        Ok(())
    }

    /// The column of an aggregate.
    fn sum(&mut self, sum: Sum) -> Result<String, NotHere> {
        let known = self.sums.iter().position(|known| *known == sum);
        let number = known.unwrap_or(self.sums.len());
        if known.is_none() {
            if number == SUMS_MAX {
                return Err(NotHere);
            }
            self.sums.push(sum);
        }
        Ok(sum_column(number))
    }

    fn filter(&mut self, tail: Option<&FunctionTail<'_>>) -> Result<Option<Expression>, NotHere> {
        match tail {
            None => Ok(None),
            Some(FunctionTail { filter_clause, over_clause: None }) => {
                filter_clause.map(|condition| self.integer(condition)).transpose()
            }
            Some(_) => Err(NotHere),
        }
    }

    /// A call of a function, if that adds up.
    fn aggregate(
        &mut self,
        name: &str,
        is_distinct: bool,
        args: &[Expr<'_>],
        tail: Option<&FunctionTail<'_>>,
    ) -> Result<Option<String>, NotHere> {
        let how = match (name.to_ascii_lowercase().as_str(), args, is_distinct) {
            ("count", [_], true) => How::CountDistinct,
            ("count", [_], false) => How::Count,
            ("min", [_], false) => How::Least,
            ("max", [_], false) => How::Most,
            ("sum", [_], false) => How::Sum,
            ("total", [_], false) => How::Total,
            ("avg", [_], false) => How::Average,
            ("median", [_], false) => How::Percentile(50.0),
            ("percentile", [_, Expr::Literal(Literal::Numeric(percent))], false) => {
                let percent = percent.parse().map_err(|_| NotHere)?;
                How::Percentile(Some(percent).filter(|value| (0.0..=100.0).contains(value)).ok_or(NotHere)?)
            }
            _ => return Ok(None),
        };
        let (of, kind) = self.typed(args.first().ok_or(NotHere)?)?;
        let is_any = matches!(how, How::Count | How::CountDistinct | How::Least | How::Most);
        if kind.is_none() || !is_any && kind != Some(Kind::Integer) {
            return Err(NotHere);
        }
        let filter = self.filter(tail)?;
        self.sum(Sum { how, of: Some(of), filter }).map(Some)
    }

    /// An expression of the result over the columns of groups.
    fn written(&mut self, expression: &Expr<'q>) -> Result<String, NotHere> {
        if let Ok((resolved, _)) = self.typed(expression)
            && let Some(number) = self.keys.iter().position(|key| key.expression == resolved)
            && let Some(key) = self.keys.get(number)
        {
            return Ok(key.affinity.column(number));
        }
        Ok(match expression {
            Expr::Literal(Literal::Numeric(_) | Literal::String(_) | Literal::Null) => expression.to_string(),
            Expr::Parenthesized(parts) if parts.len() == 1 => {
                let part = parts.first().ok_or(NotHere)?;
                format!("({})", self.written(part)?)
            }
            Expr::Unary(operator, part) => {
                let operator = match operator {
                    UnaryOperator::Not => "not",
                    UnaryOperator::Negative => "-",
                    UnaryOperator::Positive => "+",
                    UnaryOperator::BitwiseNot => "~",
                };
                format!("({operator} {})", self.written(part)?)
            }
            Expr::Binary(left, operator, right) => {
                format!("({} {} {})", self.written(left)?, operator_text(*operator), self.written(right)?)
            }
            Expr::IsNull(part) => format!("({} is null)", self.written(part)?),
            Expr::NotNull(part) => format!("({} is not null)", self.written(part)?),
            Expr::Between { lhs, not, start, end } => format!(
                "({} {}between {} and {})",
                self.written(lhs)?,
                if *not { "not " } else { "" },
                self.written(start)?,
                self.written(end)?
            ),
            Expr::InList { lhs, not, rhs } => {
                let left = self.written(lhs)?;
                let list: Vec<String> =
                    rhs.unwrap_or_default().iter().map(|one| self.written(one)).collect::<Result<_, _>>()?;
                format!("({left} {}in ({}))", if *not { "not " } else { "" }, list.join(", "))
            }
            Expr::Like { lhs, not, op, rhs, escape: None } => {
                let operator = match op {
                    LikeOperator::Like => "like",
                    LikeOperator::Glob => "glob",
                    LikeOperator::Regexp => "regexp",
                    LikeOperator::Match => return Err(NotHere),
                };
                let not = if *not { "not " } else { "" };
                format!("({} {not}{operator} {})", self.written(lhs)?, self.written(rhs)?)
            }
            Expr::Cast { expr, type_name: Some(kind) } if kind.size.is_none() => {
                format!("cast({} as {})", self.written(expr)?, quoted(kind.name))
            }
            Expr::FunctionCallStar { name, filter_over } if name.0.eq_ignore_ascii_case("count") => {
                let filter = self.filter(filter_over.as_ref())?;
                self.sum(Sum { how: How::Count, of: None, filter })?
            }
            Expr::FunctionCall { name, distinctness, args: Some(args), order_by: None, filter_over } => {
                let is_distinct = *distinctness == Some(Distinctness::Distinct);
                match self.aggregate(name.0, is_distinct, args, filter_over.as_ref())? {
                    Some(column) => column,
                    None if filter_over.is_none() && distinctness.is_none() && is_scalar(name.0, args) => {
                        let args: Vec<String> =
                            args.iter().map(|one| self.written(one)).collect::<Result<_, _>>()?;
                        format!("{}({})", name.0, args.join(", "))
                    }
                    None => return Err(NotHere),
                }
            }
            _ => self.alias(&name_of(expression).ok_or(NotHere)?)?,
        })
    }

    /// The expression that a name of the result stands for, in `having` and in expressions of `order by`.
    fn alias(&mut self, name: &str) -> Result<String, NotHere> {
        let expression = self.scope.alias(name).ok_or(NotHere)?;
        if name_of(expression).is_some() {
            return Err(NotHere);
        }
        Ok(format!("({})", self.written(expression)?))
    }

    fn order(&mut self, column: &SortedColumn<'q>) -> Result<String, NotHere> {
        // A name of the result comes before columns of the table here; so does a place in it.
        let place = match &column.expr {
            Expr::Literal(Literal::Numeric(digits)) => Some((*digits).to_owned()),
            other => name_of(other).filter(|name| self.scope.alias(name).is_some()).map(|name| quoted(&name)),
        };
        let expression = match place {
            Some(place) => place,
            None => self.written(&column.expr)?,
        };
        let order = match column.order {
            Some(SortOrder::Desc) => " desc",
            _ => "",
        };
        let nulls = match column.nulls {
            Some(NullsOrder::First) => " nulls first",
            Some(NullsOrder::Last) => " nulls last",
            None => "",
        };
        Ok(format!("{expression}{order}{nulls}"))
    }
}

/// Whether a function of SQLite makes one value of these.
fn is_scalar(name: &str, args: &[Expr<'_>]) -> bool {
    let is_of_several = ["min", "max"].iter().any(|known| known.eq_ignore_ascii_case(name)) && args.len() > 1;
    is_of_several || FUNCTIONS.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn operator_text(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "+",
        Operator::And => "and",
        Operator::ArrowRight => "->",
        Operator::ArrowRightShift => "->>",
        Operator::BitwiseAnd => "&",
        Operator::BitwiseOr => "|",
        Operator::Concat => "||",
        Operator::Equals => "=",
        Operator::Divide => "/",
        Operator::Greater => ">",
        Operator::GreaterEquals => ">=",
        Operator::Is => "is",
        Operator::IsNot => "is not",
        Operator::LeftShift => "<<",
        Operator::Less => "<",
        Operator::LessEquals => "<=",
        Operator::Modulus => "%",
        Operator::Multiply => "*",
        Operator::NotEquals => "<>",
        Operator::Or => "or",
        Operator::RightShift => ">>",
        Operator::Subtract => "-",
    }
}
