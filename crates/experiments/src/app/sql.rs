//! The load as SQL: one table, as YCSB makes it, over one connection a client.
//!
//! Always true:
//! 1. An operation that did not find its record, or found less of it than was loaded, has failed.

use mysql::prelude::Queryable;
use mysql::{Conn, Params, Row, Statement, Value};

use super::AppError;
use super::drive::Database;
use super::keys::key;
use super::work::{Operation, Records};

/// Where the table is.
const SCHEMA: &str = "tanada_bench";
/// Records of one statement while loading.
const BATCH: usize = 50;
/// Statements of one transaction.
const BATCHES: usize = 20;

fn sql(what: &'static str) -> impl Fn(mysql::Error) -> AppError {
    move |source| AppError::Sql {
        what,
        source: Box::new(source),
    }
}

/// Makes the table and fills it in the order of its keys, reporting how many records are in.
///
/// # Errors
/// [`AppError::Sql`], or what `report_progress` says.
pub fn load(
    connection: &mut Conn,
    records: Records,
    seed: u64,
    report_progress: &mut dyn FnMut(u64) -> Result<(), AppError>,
) -> Result<(), AppError> {
    let mut ask = |text: &str| connection.query_drop(text).map_err(sql("make the table"));
    ask(&format!("CREATE DATABASE {SCHEMA}"))?;
    ask(&format!("USE {SCHEMA}"))?;
    let fields: Vec<String> = (0..records.fields)
        .map(|field| format!("field{field} TEXT"))
        .collect();
    ask(&format!(
        "CREATE TABLE usertable (ycsb_key VARCHAR(64) PRIMARY KEY, {}) ENGINE=InnoDB CHARACTER SET latin1",
        fields.join(", ")
    ))?;
    ask("SET autocommit=0")?;
    let mut keys: Vec<String> = (0..records.count).map(key).collect();
    keys.sort_unstable();
    let mut rng = env::Rng::from_seed(seed);
    let line = format!("({})", vec!["?"; records.fields as usize + 1].join(","));
    let statement = |rows: usize| {
        format!(
            "INSERT INTO usertable VALUES {}",
            vec![&*line; rows].join(",")
        )
    };
    let whole = connection
        .prep(statement(BATCH))
        .map_err(sql("load the table"))?;
    let mut done = 0;
    for (n, batch) in keys.chunks(BATCH).enumerate() {
        let mut values = Vec::with_capacity(batch.len() * (records.fields as usize + 1));
        for key in batch {
            values.push(Value::Bytes(key.clone().into_bytes()));
            for _ in 0..records.fields {
                values.push(Value::Bytes(records.value(&mut rng)));
            }
        }
        let filled = match batch.len() == BATCH {
            true => connection.exec_drop(&whole, Params::Positional(values)),
            false => connection.exec_drop(statement(batch.len()), Params::Positional(values)),
        };
        filled.map_err(sql("load the table"))?;
        done += batch.len() as u64;
        if n % BATCHES == BATCHES - 1 || done == records.count {
            connection
                .query_drop("COMMIT")
                .map_err(sql("load the table"))?;
            report_progress(done)?;
        }
    }
    connection
        .query_drop("SET autocommit=1")
        .map_err(sql("load the table"))
}

/// What the server calls itself.
///
/// # Errors
/// [`AppError::Sql`].
pub fn version(connection: &mut Conn) -> Result<String, AppError> {
    let version = connection.query_first("SELECT VERSION()");
    version
        .map(Option::unwrap_or_default)
        .map_err(sql("ask its version"))
}

/// One client's connection.
pub struct Client {
    connection: Conn,
    read: Statement,
    updates: Vec<Statement>,
    records: Records,
}

impl Client {
    /// Prepares its statements.
    ///
    /// # Errors
    /// [`AppError::Sql`].
    pub fn new(mut connection: Conn, records: Records) -> Result<Client, AppError> {
        let prepare = sql("prepare a statement");
        connection
            .query_drop(format!("USE {SCHEMA}"))
            .map_err(&prepare)?;
        let read = connection
            .prep("SELECT * FROM usertable WHERE ycsb_key = ?")
            .map_err(&prepare)?;
        let mut updates = Vec::new();
        for field in 0..records.fields {
            let text = format!("UPDATE usertable SET field{field} = ? WHERE ycsb_key = ?");
            updates.push(connection.prep(text).map_err(&prepare)?);
        }
        Ok(Client {
            connection,
            read,
            updates,
            records,
        })
    }

    fn read(&mut self, record: u64) -> Result<(), String> {
        let found: Option<Row> = self
            .connection
            .exec_first(&self.read, (key(record),))
            .map_err(|error| error.to_string())?;
        let found = found.ok_or_else(|| format!("no record {}", key(record)))?;
        let length = self.records.field_bytes as usize;
        let whole = (1..=self.records.fields as usize).all(|column| {
            matches!(found.as_ref(column), Some(Value::Bytes(bytes)) if bytes.len() == length)
        });
        match whole {
            true => Ok(()),
            false => Err(format!("record {} is not whole", key(record))),
        }
    }

    fn update(&mut self, record: u64, field: u32, value: &[u8]) -> Result<(), String> {
        let statement = &self.updates[field as usize];
        let done = self.connection.exec_drop(statement, (value, key(record)));
        done.map_err(|error| error.to_string())?;
        match self.connection.affected_rows() {
            1 => Ok(()),
            found => Err(format!("{found} records {}", key(record))),
        }
    }
}

impl Database for Client {
    /// The thread is this client's alone and waits with it.
    async fn execute(&mut self, operation: &Operation) -> Result<(), String> {
        match operation {
            Operation::Read { record } => self.read(*record),
            Operation::Update {
                record,
                field,
                value,
            } => self.update(*record, *field, value),
        }
    }
}
