//! Stores, their objects and files, as Python's classes see them.
//!
//! ```text
//! connect -> Stores -> put, get, list, head, delete: objects of one store
//!                   -> Reader, Writer: files over all of them
//! ```

use std::cell::RefCell;
use std::rc::Rc;

use base::{Buf, Parcel};
use files::Make;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Serialize;

use crate::failure::Failure;
use crate::far::{Far, ask};
use crate::objects;
use crate::ways::{Entrance, Terms, Ways};

/// Connects to stores.
#[pyfunction]
pub fn connect(py: Python<'_>, entrances: Vec<Entrance>, terms: Terms) -> PyResult<Stores> {
    let connected = ask(py, move || async move {
        let ways = Ways::connect(entrances, terms).await?;
        let about = ways.0.iter().map(|way| {
            let (reads, writes) = way.directions();
            (way.identity.clone(), way.name.clone(), reads, writes)
        });
        let about = about.collect();
        Ok::<_, Failure>((Far::new(ways), about))
    })?;
    let (ways, about) = connected?;
    Ok(Stores { ways, about })
}

/// Stores that are connected.
#[pyclass(frozen, module = "tanada._native")]
pub struct Stores {
    ways: Far<Ways>,
    about: Vec<(String, String, bool, bool)>,
}

/// The same, as JSON.
fn json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| Failure::other(error.to_string()).into())
}

#[pymethods]
impl Stores {
    /// Identity, name, whether data can be read and written, of each.
    #[getter]
    fn about(&self) -> Vec<(String, String, bool, bool)> {
        self.about.clone()
    }

    fn put(
        &self,
        py: Python<'_>,
        at: usize,
        name: String,
        data: &[u8],
        is_new: bool,
    ) -> PyResult<String> {
        let data = objects::cut(data);
        let done = self.ways.ask(py, move |ways| async move {
            objects::put(ways.way(at)?.writer()?, &name, data, is_new).await
        })?;
        Ok(done?)
    }

    fn get<'py>(&self, py: Python<'py>, at: usize, name: String) -> PyResult<Bound<'py, PyBytes>> {
        let done = self.ways.ask(py, move |ways| async move {
            objects::get(ways.way(at)?.reader()?, &name).await
        })?;
        Ok(PyBytes::new(py, &done?))
    }

    fn list(&self, py: Python<'_>, at: usize, prefix: String) -> PyResult<String> {
        let done = self.ways.ask(py, move |ways| async move {
            objects::list(ways.way(at)?.looker()?, &prefix).await
        })?;
        json(&done?)
    }

    fn head(&self, py: Python<'_>, at: usize, name: String) -> PyResult<String> {
        let done = self.ways.ask(py, move |ways| async move {
            objects::head(ways.way(at)?.looker()?, &name).await
        })?;
        json(&done?)
    }

    fn delete(&self, py: Python<'_>, at: usize, name: String) -> PyResult<()> {
        let done = self.ways.ask(py, move |ways| async move {
            objects::delete(ways.way(at)?.writer()?, &name).await
        })?;
        Ok(done?)
    }

    fn read_file(&self, py: Python<'_>, name: String) -> PyResult<Reader> {
        let opened = self.ways.ask(py, move |ways| async move {
            let reader = files::Reader::open(&ways.readable(), &name).await?;
            let head = reader.head().clone();
            Ok::<_, Failure>((Far::new(reader), head))
        })?;
        let (reader, head) = opened?;
        let size = head.size;
        let head = json(&head)?;
        Ok(Reader { reader, size, head })
    }

    fn write_file(
        &self,
        py: Python<'_>,
        name: String,
        stripe: u64,
        is_new: bool,
    ) -> PyResult<Writer> {
        let make = match is_new {
            true => Make::New,
            false => Make::Replace,
        };
        let begun = self.ways.ask(py, move |ways| async move {
            let writer = files::Writer::begin(&ways.writable()?, &name, stripe, make).await?;
            Ok::<_, Failure>(Far::new(RefCell::new(Some(writer))))
        })?;
        Ok(Writer { writer: begun? })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.ways.ask(py, |ways| async move { ways.close().await })
    }
}

/// A file being read.
#[pyclass(frozen, module = "tanada._native")]
pub struct Reader {
    reader: Far<files::Reader>,
    size: u64,
    head: String,
}

#[pymethods]
impl Reader {
    #[getter]
    fn size(&self) -> u64 {
        self.size
    }

    /// The file's head, as JSON.
    #[getter]
    fn head(&self) -> String {
        self.head.clone()
    }

    fn read<'py>(&self, py: Python<'py>, offset: u64, len: u64) -> PyResult<Bound<'py, PyBytes>> {
        let read = self.reader.ask(py, move |reader| async move {
            reader.read(offset, len).await.map_err(Failure::from)
        })?;
        Ok(PyBytes::new(py, &read?))
    }
}

/// A file being written; empty once it is finished or given up.
#[pyclass(frozen, module = "tanada._native")]
pub struct Writer {
    writer: Far<RefCell<Option<files::Writer>>>,
}

/// The writer, for one call alone.
fn take(writer: &Rc<RefCell<Option<files::Writer>>>) -> Result<files::Writer, Failure> {
    let taken = writer.borrow_mut().take();
    taken.ok_or_else(|| Failure::other("the file is closed, or another thread writes to it"))
}

#[pymethods]
impl Writer {
    fn write(&self, py: Python<'_>, offset: u64, data: &[u8]) -> PyResult<()> {
        let data = Parcel::new(Buf::copy_of(data));
        let written = self.writer.ask(py, move |place| async move {
            let mut writer = take(&place)?;
            let written = writer.write(offset, data.open().freeze()).await;
            *place.borrow_mut() = Some(writer);
            written.map_err(Failure::from)
        })?;
        Ok(written?)
    }

    /// Makes it durable and visible; its generation.
    fn finish(&self, py: Python<'_>) -> PyResult<String> {
        let finished = self.writer.ask(py, |place| async move {
            let finished = take(&place)?.finish().await;
            finished.map(|it| it.to_string()).map_err(Failure::from)
        })?;
        Ok(finished?)
    }

    /// Gives it up.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.writer.ask(py, |place| async move {
            let writer = place.borrow_mut().take();
            if let Some(writer) = writer {
                writer.abandon().await;
            }
        })
    }
}
