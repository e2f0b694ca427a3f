//! A database whose tables are traces. It only reads, from these traces alone.

use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use crate::error::QueryError;
use crate::lanes::OpenTrace;
use crate::limits::{self, Limits, Reached};
use crate::schema::TABLES;
use crate::traces::Shared;
use crate::{aggregation, events, functions, lists};

/// Memory of SQLite, for pages and what it sorts before it goes into temporary files, in KiB.
const CACHE_KIB: u32 = 64 << 10;
/// All memory of SQLite, in bytes.
const MEMORY: u64 = 1 << 30;
/// Longest text of a query, in bytes.
const QUERY_MAX: i32 = 1 << 20;
/// Longest value that a query makes, in bytes.
const VALUE_MAX: i32 = 64 << 20;
/// So many times may a query read the traces before it is said that it does.
const MANY_SCANS: u64 = 50;

/// Receives a query's result.
pub trait Output {
    /// The names of its columns. Called first, once.
    ///
    /// # Errors
    ///
    /// It can't be written.
    fn columns(&mut self, names: &[String]) -> std::io::Result<()>;

    /// A row: a value for each column.
    ///
    /// # Errors
    ///
    /// It can't be written.
    fn row(&mut self, values: &[ValueRef<'_>]) -> std::io::Result<()>;

    /// There are no more rows.
    ///
    /// # Errors
    ///
    /// The rest can't be written.
    fn end(&mut self) -> std::io::Result<()>;
}

/// A database whose tables are traces.
pub struct Database {
    connection: Connection,
    shared: Rc<Shared>,
    /// The forbidden action that a query attempted.
    refused: Arc<Mutex<Option<String>>>,
    /// Whether sums are made before SQLite sees calls.
    plans: bool,
}

impl Database {
    /// With the tables of these traces.
    ///
    /// # Errors
    ///
    /// SQLite has no memory.
    pub fn open(traces: Vec<OpenTrace>) -> Result<Database, QueryError> {
        let shared = Rc::new(Shared::new(traces));
        let refused = Arc::new(Mutex::new(None));
        let connection = connect(&shared, &refused).map_err(|error| QueryError::of(&error, None))?;
        Ok(Database { connection, shared, refused, plans: true })
    }

    /// Runs a query, and writes its result.
    ///
    /// # Errors
    ///
    /// It isn't one query, it isn't SQL, it names what isn't there, it wants to write, it exceeds a
    /// limit, or its result can't be written.
    pub fn query(&mut self, sql: &str, limits: Limits, output: &mut dyn Output) -> Result<(), QueryError> {
        let reached = Reached::default();
        let watch = limits::watch(limits, reached.clone());
        let set = self.connection.progress_handler(limits::INSTRUCTIONS, Some(watch));
        set.map_err(|error| QueryError::of(&error, None))?;
        let ran = self.run(sql, limits, &reached, output);
        match reached.take(&limits) {
            Some(why) if ran.is_err() => Err(QueryError::Run(why)),
            _ => ran,
        }
    }

    fn run(
        &self,
        sql: &str,
        limits: Limits,
        reached: &Reached,
        output: &mut dyn Output,
    ) -> Result<(), QueryError> {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let failed = |error| {
            let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
            QueryError::of(&error, refused)
        };
        let mut statement = self.connection.prepare(sql).map_err(failed)?;
        if statement.column_count() == 0 {
            return Err(QueryError::empty());
        }
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        if let Some(rest) = self.grouped(sql, limits, reached)? {
            // A rest that SQLite refuses is a mistake of ours: the query runs as it is.
            if let Ok(prepared) = self.connection.prepare(&rest) {
                statement = prepared;
            }
        }
        let mut rows = statement.raw_query();
        // The first row comes before the header: what fails at once writes nothing.
        let mut row = rows.next().map_err(failed)?;
        output.columns(&names)?;
        while let Some(cells) = row {
            let mut values = Vec::with_capacity(names.len());
            for column in 0..names.len() {
                values.push(cells.get_ref(column).map_err(failed)?);
            }
            output.row(&values)?;
            row = rows.next().map_err(failed)?;
        }
        Ok(output.end()?)
    }

    /// Adds up the calls of a query that does nothing else with them: its groups are a table
    /// then, and the rest of the query is returned.
    fn grouped(&self, sql: &str, limits: Limits, reached: &Reached) -> Result<Option<String>, QueryError> {
        let Some(plan) = self.plans.then(|| aggregation::plan(sql, lists::GROUPS)).flatten() else {
            return Ok(None);
        };
        match plan.run(&self.shared, &mut limits::watch(limits, reached.clone())) {
            Ok(groups) => {
                *self.shared.groups.borrow_mut() = Rc::new(groups);
                Ok(Some(plan.rest))
            }
            Err(aggregation::Ended::LeaveIt) => Ok(None),
            // The caller knows which one.
            Err(aggregation::Ended::Limit) => Err(QueryError::Run("a limit was reached".to_owned())),
        }
    }

    /// Leaves everything to SQLite.
    #[cfg(test)]
    pub(crate) fn without_plans(mut self) -> Database {
        self.plans = false;
        self
    }

    /// How many times the traces were read, if that is so often that the query should be written
    /// in another way.
    #[must_use]
    pub fn many_scans(&self) -> Option<u64> {
        Some(self.shared.scans.get()).filter(|scans| *scans >= MANY_SCANS)
    }
}

fn connect(shared: &Rc<Shared>, refused: &Arc<Mutex<Option<String>>>) -> rusqlite::Result<Connection> {
    // No name is taken for a path or an address.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_in_memory_with_flags(flags)?;
    events::register(&connection, shared)?;
    lists::register(&connection, shared)?;
    functions::register(&connection)?;
    for view in TABLES.iter().filter_map(|table| table.view()) {
        connection.execute_batch(&view)?;
    }
    connection.execute_batch(&format!(
        "pragma cache_size = -{CACHE_KIB}; pragma hard_heap_limit = {MEMORY}; pragma temp_store = file; pragma query_only = on"
    ))?;
    let limits = [
        (Limit::SQLITE_LIMIT_SQL_LENGTH, QUERY_MAX),
        (Limit::SQLITE_LIMIT_LENGTH, VALUE_MAX),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 500),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 200),
        (Limit::SQLITE_LIMIT_VDBE_OP, 1_000_000),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 10_000),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ];
    for (limit, value) in limits {
        connection.set_limit(limit, value)?;
    }
    let refused = refused.clone();
    connection.authorizer(Some(move |context: AuthContext<'_>| match wrong(&context.action) {
        None => Authorization::Allow,
        Some(what) => {
            *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
            Authorization::Deny
        }
    }))?;
    Ok(connection)
}

/// Pragmas that only read.
const PRAGMAS: [&str; 3] = ["table_info", "table_xinfo", "table_list"];

/// A forbidden action, in a few words; `None` if it is allowed.
fn wrong(action: &AuthAction<'_>) -> Option<String> {
    match action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => None,
        AuthAction::Function { function_name } if !function_name.eq_ignore_ascii_case("load_extension") => {
            None
        }
        AuthAction::Function { function_name } => Some(format!("the function {function_name}")),
        AuthAction::Pragma { pragma_name, .. }
            if PRAGMAS.iter().any(|name| pragma_name.eq_ignore_ascii_case(name)) =>
        {
            None
        }
        AuthAction::Pragma { pragma_name, .. } => Some(format!("the pragma {pragma_name}")),
        AuthAction::Attach { .. } | AuthAction::Detach { .. } => Some("attaching files".to_owned()),
        AuthAction::Transaction { .. } | AuthAction::Savepoint { .. } => Some("transactions".to_owned()),
        _ => Some("writing".to_owned()),
    }
}
