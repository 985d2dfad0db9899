//! Making, opening, closing a hybrid disk; attaching and detaching its fast device; changing its size.
//!
//! ```text
//! create:  label "detached" -> empty ledger -> fingerprints of the slow device -> record -> label "attached"
//! open:    record and label -> replay the ledger -> drop clean pages of marked regions -> compare fingerprints
//!          -> label of the next attachment -> record
//! detach:  destage everything -> label "detached" -> record -> the slow device stands alone
//! close:   commit -> clean mark; dirty data stay on the fast device, and the next open finds the cache warm
//! ```
//!
//! What may be done with a fast device is decided in [`crate::attach::pair`].
//!
//! Always true:
//! 1. None of these writes the slow device but to destage its own data.
//! 2. A pair that does not belong together is refused, and nothing is written.
//! 3. Cut off at any point, the pair opens as before or as after.
//!
//! An operation on an open disk runs as a task of its own: a caller that goes away leaves no closed gate, and no
//! slow write under way whose pages are not locked.

use std::collections::BTreeMap;
use std::rc::Rc;

use base::{Bytes, Map, Nanos};
use device::{Device, DeviceError};
use ledger::{Identity, Ledger, LedgerError, Record};

use crate::attach::error::OpenError;
use crate::attach::label::{Attachment, Label, PAGE, Unlabelled};
use crate::attach::pair::{Keeper, Pair, PairBook, Refusal, Verdict, is_ours, judge, judge_both};
use crate::attach::refuse::{loses, makes, refused};
use crate::attach::relabel::Change;
use crate::cache::{Abandon, Cache, Condition, Ends, spare_for};
use crate::durable::record::{Fact, understand};
use crate::durable::samples::{sample_crc, sample_pages};
use crate::engine::compare::KnownContents;
use crate::engine::{Hybrid, Inner, Recovered};
use crate::index::extents::ExtentRecord;
use crate::index::page_map::{PageMap, REGION_PAGES};
use crate::settings::Mode;
use crate::settings::Settings;
use crate::slow::Slow;

/// How a pair is to be opened.
#[derive(Clone, Default)]
pub struct Ties {
    /// Take the fast device even if it holds something else or belongs elsewhere: what is on it is lost. What
    /// the record of pairs says may be the only copy is never given up so.
    pub force: bool,
    /// Caches given up after a failure: their contents never count again, whatever their labels say.
    pub abandoned: Vec<u128>,
    /// Remembers a cache given up when its own label cannot be written any more; without it such a
    /// failure stops the volume.
    pub on_abandon: Option<Abandon>,
    /// Where the record of the volume's cache is kept. Without it, an open cannot recognize a blank fast device, or one
    /// that was away meanwhile.
    pub pairs: Option<Rc<dyn PairBook>>,
    /// Compare every clean page of the cache with the slow device before the page is used.
    pub verify: bool,
    /// The mode that label and record keep ([`crate::kept_mode`]); `None`: that of the settings.
    pub mode: Option<Mode>,
    /// A mistake in the record of pairs, which the crash run must catch.
    #[cfg(test)]
    pub(crate) planted: Option<crate::mutation::Mutation>,
}

impl Hybrid {
    /// Makes a hybrid disk of `slow`, whose contents stay, and `fast`, which becomes an empty cache.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was written then, unless a device failed half-way.
    ///
    /// # Example
    /// ```
    /// use base::{Bytes, Sector, View};
    /// use device::{Device, DeviceExt, Memory};
    /// use hybrid::{Hybrid, Settings, Ties};
    ///
    /// env::Runtime::simulated(1).block_on(async {
    ///     let slow = Memory::new("hdd0", Bytes::mib(64));
    ///     let fast = Memory::new("ssd0", Bytes::mib(8));
    ///     let disk = Hybrid::create(Settings::default(), slow, fast, Ties::default()).await?;
    ///     disk.write_at(Sector(8), View::copy_of(&[7; 4096])).await?;
    ///     disk.flush().await?;
    ///     assert_eq!(disk.read_at(Sector(8), Bytes(4096)).await?[0], 7);
    ///     assert_eq!(disk.status().dirty_bytes, 4096); // on the fast device only, so far
    ///     disk.detach().await?;
    ///     assert_eq!(disk.status().dirty_bytes, 0); // the slow device has it all
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// }).unwrap();
    /// ```
    pub async fn create(
        mut settings: Settings,
        slow: Rc<dyn Device>,
        fast: Rc<dyn Device>,
        ties: Ties,
    ) -> Result<Hybrid, OpenError> {
        settings.fit(&*fast);
        settings.check()?;
        let inner = Inner::new(settings, Slow::new(slow));
        inner.format(fast, &ties).await?;
        Ok(Hybrid { inner })
    }

    /// Opens a hybrid disk made before, warm, after a clean stop or a crash.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was written then.
    pub async fn open(
        mut settings: Settings,
        slow: Rc<dyn Device>,
        fast: Rc<dyn Device>,
        ties: Ties,
    ) -> Result<Hybrid, OpenError> {
        settings.fit(&*fast);
        settings.check()?;
        let inner = Inner::new(settings, Slow::new(slow));
        let keeper = inner.keeper(&ties)?;
        let found = Label::read(&fast).await?;
        match (
            judge(&inner.name, keeper.record(), &found, &ties.abandoned, false),
            found,
        ) {
            (Verdict::Open, Ok(label)) => inner.recover(fast, label, &ties, keeper).await?,
            (Verdict::Refuse(refusal), found) => {
                return Err(inner.refused(&fast, &found, refusal, None));
            }
            (_, found) => {
                let why = match found {
                    Ok(_) => "the cache on it was detached or given up",
                    Err(_) => "it is blank",
                };
                return Err(OpenError::NoCache {
                    fast: fast.info().name,
                    why: why.to_owned(),
                });
            }
        }
        Ok(Hybrid { inner })
    }

    /// Opens the pair if `fast` is its cache, and makes a cache on `fast` if it is blank or was detached.
    ///
    /// # Errors
    /// [`OpenError`]; with `ties.force`, what stands in the way on `fast` is destroyed instead, unless the record
    /// of pairs says that it may be the only copy.
    pub async fn open_or_create(
        mut settings: Settings,
        slow: Rc<dyn Device>,
        fast: Rc<dyn Device>,
        ties: Ties,
    ) -> Result<Hybrid, OpenError> {
        settings.fit(&*fast);
        settings.check()?;
        let inner = Inner::new(settings, Slow::new(slow));
        let keeper = inner.keeper(&ties)?;
        let found = Label::read(&fast).await?;
        match (
            judge(
                &inner.name,
                keeper.record(),
                &found,
                &ties.abandoned,
                ties.force,
            ),
            found,
        ) {
            (Verdict::Open, Ok(label)) => {
                let ours = is_ours(&inner.name, keeper.record(), &label);
                let may_force = ties.force && ours && !keeper.now().dirty;
                match inner.recover(Rc::clone(&fast), label, &ties, keeper).await {
                    Err(error) if may_force && !matches!(error, OpenError::Device(_)) => {
                        tracing::warn!("{}", loses(&inner.name, &error));
                        inner.format(fast, &ties).await?;
                    }
                    answer => answer?,
                }
            }
            _ => inner.format(fast, &ties).await?,
        }
        Ok(Hybrid { inner })
    }

    /// The slow device alone, with no cache yet; see [`Hybrid::attach`].
    ///
    /// # Errors
    /// [`OpenError::Settings`].
    pub fn alone(settings: Settings, slow: Rc<dyn Device>) -> Result<Hybrid, OpenError> {
        settings.check()?;
        Ok(Hybrid {
            inner: Inner::new(settings, Slow::new(slow)),
        })
    }

    pub(crate) fn manage(&self, what: &'static str) -> Result<Managing, OpenError> {
        let inner = &self.inner;
        let refuse = |why: &str| OpenError::State {
            what,
            name: inner.name.clone(),
            why: why.to_owned(),
        };
        if inner.closed.get() {
            return Err(refuse("it was shut down"));
        }
        if inner.managing.replace(true) {
            return Err(refuse(
                "another management operation is under way; try again when it has ended",
            ));
        }
        Ok(Managing(Rc::clone(inner)))
    }

    /// Puts `fast` in front of a disk that stands alone, while it is in use. An empty cache is made on it.
    ///
    /// # Errors
    /// [`OpenError`]; the disk goes on alone then.
    pub async fn attach(&self, fast: Rc<dyn Device>, ties: Ties) -> Result<(), OpenError> {
        let disk = self.clone();
        env::spawn(async move { disk.attach_whole(fast, ties).await }).await
    }

    async fn attach_whole(&self, fast: Rc<dyn Device>, ties: Ties) -> Result<(), OpenError> {
        let _managing = self.manage("attach a fast device to")?;
        let inner = &self.inner;
        if inner.live_cache().is_some() {
            return Err(OpenError::State {
                what: "attach a fast device to",
                name: inner.name.clone(),
                why: "it has one; detach that first".to_owned(),
            });
        }
        let mut settings = self.settings();
        settings.fit(&*fast);
        settings.check()?;
        *inner.settings.borrow_mut() = settings;
        inner.close_gate().await;
        let answer = match inner.drain_buffer().await {
            Ok(()) => inner.format(fast, &ties).await,
            Err(error) => Err(error.into()),
        };
        inner.open_gate();
        answer
    }

    /// Destages all dirty data and lets the slow device stand alone, while the disk is in use.
    /// Afterwards the slow device is a plain disk again.
    ///
    /// # Errors
    /// [`OpenError::Device`] if data could not be destaged: the pair stays together then; or if the fast
    /// device's label could not be written: nothing is dirty then, and the fast device is given up.
    pub async fn detach(&self) -> Result<(), OpenError> {
        let disk = self.clone();
        env::spawn(async move { disk.detach_whole().await }).await
    }

    async fn detach_whole(&self) -> Result<(), OpenError> {
        let _managing = self.manage("detach the fast device of")?;
        let inner = &self.inner;
        let Some(cache) = inner.live_cache() else {
            return Ok(());
        };
        let _halt = inner.halt_moves(&cache).await;
        // Most of it while users go on; then hold them up for the rest.
        inner.destage_most(&cache).await?;
        inner.close_gate().await;
        let answer = inner.let_go(&cache).await;
        inner.open_gate();
        answer
    }

    /// Stops cleanly: everything is committed, dirty data stay on the fast device, and the next start is
    /// warm. Requests that come later are refused.
    ///
    /// # Errors
    /// [`OpenError`] if the last commit failed; the disk is closed all the same.
    pub async fn close(&self) -> Result<(), OpenError> {
        let disk = self.clone();
        env::spawn(async move { disk.close_whole().await }).await
    }

    async fn close_whole(&self) -> Result<(), OpenError> {
        let _managing = self.manage("close")?;
        let inner = &self.inner;
        inner.close_gate().await;
        inner.closed.set(true);
        let answer = match inner.live_cache() {
            None => inner.flush().await.map_err(OpenError::from),
            Some(cache) => {
                let _halt = inner.halt_moves(&cache).await;
                inner.put_down(&cache).await
            }
        };
        if let Some(cache) = &*inner.cache.borrow() {
            cache.stop();
        }
        inner.open_gate();
        answer
    }

    /// Lets the cache use `fast_bytes` of the fast device (`None`: all of it), while the disk is in use.
    /// A smaller cache evicts what lies behind its new end; dirty data are destaged first.
    ///
    /// # Errors
    /// [`OpenError::TooSmall`], or a device's error; the size stays as it was then.
    pub async fn resize(&self, fast_bytes: Option<Bytes>) -> Result<(), OpenError> {
        let disk = self.clone();
        env::spawn(async move { disk.resize_whole(fast_bytes).await }).await
    }

    async fn resize_whole(&self, fast_bytes: Option<Bytes>) -> Result<(), OpenError> {
        let _managing = self.manage("resize the cache of")?;
        let inner = &self.inner;
        let Some(cache) = inner.live_cache() else {
            return Err(OpenError::State {
                what: "resize the cache of",
                name: inner.name.clone(),
                why: "it has none".to_owned(),
            });
        };
        let slots_max = cache.label.borrow().slots_max;
        let wanted = fast_bytes.map_or(slots_max, |bytes| {
            (bytes.0 / PAGE).min(u64::from(slots_max)) as u32
        });
        if wanted < 64 {
            return Err(OpenError::TooSmall {
                fast: cache.fast.info().name,
                size: Bytes(u64::from(wanted) * PAGE),
                slow: inner.slow.info.name.clone(),
                slow_size: inner.slow.info.size,
                least: Bytes(64 * PAGE),
            });
        }
        inner.close_gate().await;
        let answer = inner.change_size(&cache, wanted).await;
        inner.open_gate();
        if answer.is_ok() {
            inner.settings.borrow_mut().fast_bytes = fast_bytes;
        }
        answer
    }
}

/// One management operation under way.
pub(crate) struct Managing(Rc<Inner>);

impl Drop for Managing {
    fn drop(&mut self) {
        self.0.managing.set(false);
    }
}

impl Inner {
    /// The record of this volume's cache.
    fn keeper(&self, ties: &Ties) -> Result<Rc<Keeper>, OpenError> {
        let keeper = Keeper::read(ties.pairs.as_ref()).map_err(|why| OpenError::Record {
            name: self.name.clone(),
            why,
        })?;
        #[cfg(test)]
        keeper.planted.set(ties.planted);
        Ok(keeper)
    }

    /// Replaces the record of this volume's cache.
    pub(crate) fn note_pair(&self, cache: &Cache, pair: Pair) -> Result<(), OpenError> {
        self.note_in(&cache.pair, pair)
    }

    fn note_in(&self, keeper: &Keeper, pair: Pair) -> Result<(), OpenError> {
        keeper.note(pair).map_err(|why| OpenError::Record {
            name: self.name.clone(),
            why,
        })
    }

    /// A refusal in words.
    fn refused(
        &self,
        fast: &Rc<dyn Device>,
        found: &Result<Label, Unlabelled>,
        refusal: Refusal,
        slow: Option<&Label>,
    ) -> OpenError {
        let info = fast.info();
        let names = (&*self.name, &*self.slow.info.name, &*info.name);
        refused(names, info.size, found, refusal, slow)
    }

    /// May an empty cache be made on `fast`?
    async fn check_free(
        &self,
        fast: &Rc<dyn Device>,
        found: &Result<Label, Unlabelled>,
        record: Option<Pair>,
        ties: &Ties,
    ) -> Result<(), OpenError> {
        let ours = |label: &Label| is_ours(&self.name, record, label);
        let may_force =
            ties.force && found.as_ref().is_ok_and(ours) && !record.is_some_and(|pair| pair.dirty);
        let slow = Label::at_start(&self.slow.device).await?;
        let (name, slow) = (&self.name, slow.as_ref());
        let judged = |force| judge_both(name, record, slow, found, &ties.abandoned, force);
        match judged(ties.force) {
            Verdict::Make => {}
            Verdict::Open if may_force => return Ok(()),
            Verdict::Open => {
                return Err(OpenError::State {
                    what: "make a cache for",
                    name: self.name.clone(),
                    why: format!(
                        "{} is the cache of '{}' already; detach it there, or choose another device",
                        fast.info().name,
                        found.as_ref().map_or("", |label| &label.name)
                    ),
                });
            }
            Verdict::Refuse(refusal) => return Err(self.refused(fast, found, refusal, slow)),
        }
        match judged(false) {
            Verdict::Refuse(refusal) => {
                let error = self.refused(fast, found, refusal, slow);
                tracing::warn!("{}", loses(name, &error));
            }
            _ => tracing::info!("{}: {}", fast.info().name, makes(name, found)),
        }
        Ok(())
    }

    /// Ends what goes on behind the users' backs: no fill, round of cleaning or clearing of intents is under way
    /// afterwards, and none will begin. The gate is closed.
    async fn quiet(&self, cache: &Rc<Cache>) {
        cache.quiesce_fills().await;
        let _turn = cache.cleaning.acquire(1).await;
        cache.stop();
    }

    /// Detaches: the gate is closed.
    async fn let_go(&self, cache: &Rc<Cache>) -> Result<(), OpenError> {
        cache.quiesce_fills().await;
        self.destage_all(cache).await?;
        self.slow.flush().await?;
        cache.committed().await?;
        let clean = Pair {
            dirty: false,
            ..cache.pair.now()
        };
        if let Err(error) = self.note_pair(cache, clean) {
            // It may say so all the same, and nothing may become dirty then. Nothing is: the slow device goes on alone.
            if !cache.pair.is_settled() {
                cache.fail(gone(&self.name, &error)).await;
            }
            return Err(error);
        }
        if let Err(error) = cache.label.change_attachment(Attachment::Detached).await {
            // One copy may say "detached" already, so nothing may count on the cache any more. Nothing
            // is dirty: the slow device goes on alone, if the tie can be cut at all.
            cache.fail(error.clone()).await;
            return Err(error.into());
        }
        if let Err(why) = cache.pair.note(clean.alone()) {
            // It names a cache of which nothing is missed, and whose label says that it ended.
            tracing::warn!(volume = %self.name, why, "the record of pairs could not be written");
        }
        self.quiet(cache).await;
        *self.cache.borrow_mut() = None;
        *self.why_alone.borrow_mut() = "the fast device was detached".to_owned();
        Ok(())
    }

    /// Closes: the gate is closed for good. Goes as far as it can and returns the first error.
    async fn put_down(&self, cache: &Rc<Cache>) -> Result<(), OpenError> {
        cache.quiesce_fills().await;
        let mut first: Result<(), OpenError> = cache.committed().await.map_err(OpenError::from);
        // A rested disk needs no intents, and a full set of fingerprints recognises it best.
        let cleared = self.clear_intents(cache, Nanos(0)).await;
        first = first.and(cleared.map_err(OpenError::from));
        // No round is under way from here on, and once the cache has stopped none begins.
        let _turn = cache.cleaning.acquire(1).await;
        // After that: a round that failed may have written pages without a flush, and a fingerprint of what a power
        // cut could still undo would be wrong afterwards.
        let flushed = self.slow.flush().await;
        first = first.and(flushed.map_err(OpenError::from));
        if first.is_ok() {
            self.refresh_dirty_samples(cache).await;
            self.note_closing(cache).await;
        }
        let committed = cache.committed().await;
        first = first.and(committed.map_err(OpenError::from));
        cache.stop();
        let closed = cache.ledger.close().await;
        first = first.and(closed.map_err(|source| OpenError::Ledger {
            name: self.name.clone(),
            fast: cache.fast.info().name,
            source,
        }));
        first?;
        cache.label.change(Change::Closed).await?;
        match cache.map.borrow().dirty() {
            0 => self.note_pair(
                cache,
                Pair {
                    dirty: false,
                    ..cache.pair.now()
                },
            ),
            _ => Ok(()),
        }
    }

    /// Beneath dirty pages the slow device has what it had when they were written, unless the cleaner was at work on
    /// them since. At rest it is read anew: then a start can see whether it was changed meanwhile.
    async fn refresh_dirty_samples(&self, cache: &Rc<Cache>) {
        let pages = sample_pages(self.slow.whole_pages());
        for (number, page) in pages.into_iter().enumerate() {
            if cache.map.borrow().is_dirty(page) {
                cache.refresh_sample(number as u64, page).await;
            }
        }
    }

    /// Makes an empty cache on `fast` and puts it to work.
    async fn format(self: &Rc<Self>, fast: Rc<dyn Device>, ties: &Ties) -> Result<(), OpenError> {
        let keeper = self.keeper(ties)?;
        let found = Label::read(&fast).await?;
        self.check_free(&fast, &found, keeper.record(), ties)
            .await?;
        // On a blank device one label is written after the other, so that one can always be read.
        let wipes = !matches!(found, Ok(_) | Err(Unlabelled::Blank));
        let (sequence, attached) = found
            .as_ref()
            .map_or((0, 0), |label| (label.sequence, label.generation));
        let generation = attached.max(keeper.now().generation) + 1;
        let info = fast.info();
        let settings = self.settings.borrow().clone();
        let mut rng = env::rng("hybrid.uuid");
        let uuid = u128::from(rng.bits()) << 64 | u128::from(rng.bits() ^ env::wall_clock().0);
        let slow_size = self.slow.info.size;
        let layout = Label::layout(info.size, settings.fast_bytes, slow_size, &self.name, uuid);
        let Some(mut label) = layout else {
            return Err(OpenError::TooSmall {
                fast: info.name,
                size: settings
                    .fast_bytes
                    .map_or(info.size, |limit| Bytes(limit.0.min(info.size.0))),
                slow: self.slow.info.name.clone(),
                slow_size,
                least: Label::smallest(slow_size),
            });
        };
        let failed = |source: LedgerError| OpenError::Ledger {
            name: self.name.clone(),
            fast: info.name.clone(),
            source,
        };
        self.check_block(&info.name, label.slots)?;
        // Until the last step the label says that nothing here counts.
        label.sequence = sequence;
        label.generation = generation;
        label.mode = Some(ties.mode.unwrap_or(settings.mode));
        label.attachment = Attachment::Detached;
        // Its label says that it ended, and is about to be replaced: a stop after that must not leave it missed.
        self.note_in(&keeper, keeper.now().without_dirty())?;
        if wipes {
            Label::wipe(&fast).await?;
        }
        label.write_both(&fast).await?;
        // Nothing of a former life counts, also of another version.
        Ledger::wipe(Rc::clone(&fast), label.ledger)
            .await
            .map_err(failed)?;
        let identity = Identity {
            id: uuid,
            payload: Vec::new(),
        };
        let ledger = Ledger::format(Rc::clone(&fast), label.ledger, identity)
            .await
            .map_err(failed)?;
        // A fingerprint of what a power cut could still undo would be wrong afterwards.
        self.slow.flush().await?;
        let mut samples: Map<u64, Option<u32>> = Map::default();
        for (number, page) in sample_pages(self.slow.whole_pages())
            .into_iter()
            .enumerate()
        {
            let crc = sample_if_readable(&*self.slow.device, page).await?;
            samples.insert(number as u64, crc);
        }
        let map = PageMap::new(label.slots, settings.policy, settings.block.0 / PAGE);
        let cache = Cache::new(
            &settings,
            fast,
            Rc::clone(&self.slow),
            ledger,
            label,
            map,
            Ends {
                on_abandon: ties.on_abandon.clone(),
                pair: keeper,
            },
        );
        for number in 0..samples.len() as u64 {
            cache.touch_sample(number);
        }
        cache.samples.replace(samples);
        self.begin_commits(&cache);
        self.put_to_work(&cache);
        let answer = async {
            cache.committed().await?;
            self.take_new(&cache, generation).await
        }
        .await;
        if answer.is_err() {
            self.quiet(&cache).await;
            // One copy may say "attached" all the same, and the slow device goes on alone.
            if let Err(why) = cache.abandon().await {
                tracing::error!(volume = %self.name, why, "a cache that was not made may count all the same");
            }
        }
        answer?;
        if let Some(old) = self.cache.replace(Some(cache)) {
            old.stop();
        }
        Ok(())
    }

    /// The record, then the label: this new cache counts from now on.
    async fn take_new(&self, cache: &Rc<Cache>, generation: u64) -> Result<(), OpenError> {
        let pair = Pair {
            cache: Some(cache.label.borrow().uuid),
            generation,
            dirty: self.settings.borrow().write.keeps_dirty(),
            mode: cache.label.borrow().mode,
            ..Pair::default()
        };
        self.note_pair(cache, pair)?;
        let Err(error) = cache.label.change(Change::Opened(generation)).await else {
            return Ok(());
        };
        // One copy may say "attached", and the slow device goes on alone.
        if cache.abandon().await.is_err()
            && let Err(why) = cache.pair.note(pair.alone())
        {
            tracing::warn!(volume = %self.name, why, "the record of pairs could not be written");
        }
        Err(error.into())
    }

    /// The record, before anything is written to the fast device: the cache as it was found. Where no record can be
    /// written, a cache of an earlier version stays one that its program opens.
    fn take_found(&self, cache: &Cache, failing: bool) -> Result<(), OpenError> {
        let (uuid, generation, mode) = {
            let label = cache.label.borrow();
            (label.uuid, label.generation, label.mode)
        };
        let now = cache.pair.now();
        let ours = now.cache == Some(uuid);
        let pair = Pair {
            cache: Some(uuid),
            // An accepted one may be behind; the count never goes back.
            generation: generation.max(now.generation),
            dirty: (now.dirty && ours) || cache.map.borrow().dirty() > 0,
            failing,
            accepted: now.accepted && ours,
            mode,
        };
        self.note_pair(cache, pair)
    }

    /// The label, then the record: a cache of an earlier attachment counts in this one. What is dropped is durably
    /// gone before: from here on clean pages count again.
    async fn take_again(&self, cache: &Rc<Cache>) -> Result<(), OpenError> {
        let (uuid, attached, mode) = {
            let label = cache.label.borrow();
            (label.uuid, label.generation, label.mode)
        };
        let generation = attached.max(cache.pair.now().generation) + 1;
        if let Err(error) = cache.label.change(Change::Opened(generation)).await {
            cache.fail(error.clone()).await;
            return Err(error.into());
        }
        let dirty = cache.map.borrow().dirty() > 0;
        let pair = Pair {
            cache: Some(uuid),
            generation,
            dirty: dirty || self.settings.borrow().write.keeps_dirty(),
            mode,
            ..Pair::default()
        };
        self.note_pair(cache, pair)
    }

    fn begin_commits(&self, cache: &Rc<Cache>) {
        let commit_after = self.settings.borrow().commit_after;
        env::spawn(Rc::clone(cache).commit_loop(commit_after));
    }

    fn put_to_work(self: &Rc<Self>, cache: &Rc<Cache>) {
        self.remember_reads(cache.slots.borrow().total());
        env::spawn(Rc::clone(self).destage_loop(Rc::clone(cache)));
        env::spawn(Rc::clone(self).clear_intents_loop(Rc::clone(cache)));
        env::spawn(Rc::clone(self).interval_loop(Rc::clone(cache)));
        env::spawn(Rc::clone(self).pace_loop(Rc::clone(cache)));
        env::spawn(Rc::clone(self).promote_loop(Rc::clone(cache)));
        env::spawn(Rc::clone(self).copy_loop(Rc::clone(cache)));
        env::spawn(Rc::clone(self).demote_loop(Rc::clone(cache)));
        env::spawn(Rc::clone(self).published_loop(Rc::clone(cache)));
        self.begin_tier(cache);
    }

    /// Recovers a cache: the last committed map, clean and dirty entries alike.
    async fn recover(
        self: &Rc<Self>,
        fast: Rc<dyn Device>,
        label: Label,
        ties: &Ties,
        keeper: Rc<Keeper>,
    ) -> Result<(), OpenError> {
        let start = env::now();
        let info = fast.info();
        let fast_name = info.name.clone();
        self.check_size(&fast_name, &label)?;
        self.check_block(&fast_name, label.slots)?;
        // A process that was killed may have left writes in the volatile caches of both devices. They are seen now,
        // and what is seen must stay: the slow device is flushed here, the fast one by its ledger.
        self.slow.flush().await?;
        let settings = self.settings.borrow().clone();
        let pages_per_block = settings.block.0 / PAGE;
        // The log may still name slots behind the end of a cache that was made smaller since.
        let mut map = PageMap::new(label.slots_max, settings.policy, pages_per_block);
        let mut intents: Map<u64, bool> = Map::default();
        let mut samples: Map<u64, Option<u32>> = Map::default();
        let mut kept: BTreeMap<u32, ExtentRecord> = BTreeMap::new();
        let mut wrong: Option<String> = None;
        let whole_pages = self.slow.whole_pages();
        let visit = |record: Record<'_>| match understand(record) {
            None => {
                wrong.get_or_insert_with(|| format!("a record is none of ours: {record:?}"));
            }
            Some(Fact::Page(page, None)) => {
                map.remove(page);
            }
            Some(Fact::Page(page, Some(entry))) => {
                let free_or_ours = entry.slot < label.slots_max
                    && map
                        .in_slot(entry.slot)
                        .is_none_or(|(holder, _)| holder == page);
                if !free_or_ours || page >= whole_pages {
                    let why = || format!("page {page} cannot be in slot {}", entry.slot);
                    wrong.get_or_insert_with(why);
                    return;
                }
                // The same page in the same slot: only its state changed.
                if map.find(page) == Some(entry.slot) {
                    map.remove(page);
                }
                map.put(page, entry.slot, entry.dirty, entry.mask, entry.crc, start);
            }
            Some(Fact::Intent(region, marked)) => {
                intents.insert(region, marked);
            }
            Some(Fact::Sample(number, crc)) => {
                samples.insert(number, crc);
            }
            Some(Fact::Extent(extent, None)) => {
                kept.remove(&extent);
            }
            Some(Fact::Extent(extent, Some(state))) => {
                kept.insert(extent, state);
            }
        };
        let opened = Ledger::open(Rc::clone(&fast), label.ledger, visit).await;
        let (ledger, replay) = opened.map_err(|source| {
            let (name, fast) = (self.name.clone(), fast_name.clone());
            match source {
                LedgerError::Damaged { .. } => OpenError::MapLost {
                    name,
                    fast,
                    cache: label.uuid,
                    source: Box::new(source),
                },
                _ => OpenError::Ledger { name, fast, source },
            }
        })?;
        let beyond = (label.slots..label.slots_max).find_map(|slot| map.in_slot(slot));
        if let Some((page, entry)) = beyond {
            wrong.get_or_insert_with(|| {
                format!(
                    "page {page} is in slot {}, behind the last one in use ({})",
                    entry.slot, label.slots
                )
            });
        }
        if let Some(why) = wrong {
            return Err(OpenError::Damaged {
                fast: fast_name,
                why,
            });
        }
        if label.slots < label.slots_max {
            map.resize(label.slots, settings.policy, pages_per_block);
        }
        intents.retain(|_, marked| *marked);
        // A cache that failed destaged some of its data, past the map: its clean entries and
        // fingerprints are out of date.
        let known = keeper.now();
        let failing = label.attachment == Attachment::Failing
            || (known.failing && known.cache == Some(label.uuid));
        if !failing {
            let ours = keeper.now().cache == Some(label.uuid) || label.is_of(&self.name);
            let known = KnownContents {
                map: &map,
                slots: label.slots,
                intents: &intents,
                samples: &samples,
                closed: label.closed,
                all: ties.verify,
                of: (!ours).then(|| label.name.clone()),
            };
            self.check_slow(&label, &fast_name, &known).await?;
        }
        // A commit that cannot be read may have recorded writes past the cache.
        let doubted = failing || replay.unreadable_at.is_some();
        let used = label.slots;
        let label = Label {
            mode: Some(ties.mode.unwrap_or(settings.mode)),
            ..label
        };
        let cache = Cache::new(
            &settings,
            fast,
            Rc::clone(&self.slow),
            ledger,
            label,
            map,
            Ends {
                on_abandon: ties.on_abandon.clone(),
                pair: keeper,
            },
        );
        let mut recovered = Recovered::default();
        for region in intents.into_keys() {
            cache.intents.borrow_mut().recovered(region);
        }
        for slot in 0..used {
            let found = cache.map.borrow().in_slot(slot);
            let Some((page, entry)) = found else {
                continue;
            };
            cache.slots.borrow_mut().take(slot);
            let marked = cache.intents.borrow().has(page / REGION_PAGES);
            if (marked || doubted) && !entry.dirty {
                // The slow device may have changed beneath; the slot waits for the removal's commit.
                cache.unmap_page(page);
                recovered.dropped += 1;
            } else {
                recovered.pages += 1;
            }
        }
        cache.samples.replace(samples);
        self.restore_tier(&cache, &kept);
        recovered.took = env::now().since(start);
        self.recovered.set(recovered);
        tracing::info!(
            volume = %self.name, pages = recovered.pages, dropped = recovered.dropped,
            records = replay.records, "cache recovered"
        );
        if doubted {
            for number in cache.samples.borrow_mut().values_mut() {
                *number = None;
            }
            let numbers: Vec<u64> = cache.samples.borrow().keys().copied().collect();
            for number in numbers {
                cache.touch_sample(number);
            }
        }
        if let Some(at) = replay.unreadable_at {
            let bytes = Bytes(replay.unreadable * PAGE);
            cache.trouble.end_unreadable(&fast_name, at, bytes);
            tracing::warn!(
                volume = %self.name, device = fast_name, byte = at.byte(), bytes = bytes.0,
                "the end of the map's log cannot be read: a power cut hit its last commit, or what was flushed last \
                 is missing"
            );
        }
        self.begin_commits(&cache);
        let answer = async {
            // What was dropped must be durably gone before its slots or regions are used anew: the first
            // commit carries it, and slots wait for that.
            self.take_found(&cache, failing)?;
            cache.committed().await?;
            self.take_again(&cache).await?;
            // Not before: until the label names this attachment the slow device must stay as it was closed.
            self.put_to_work(&cache);
            *self.cache.borrow_mut() = Some(Rc::clone(&cache));
            self.resize_at_open(settings.fast_bytes).await
        }
        .await;
        match answer {
            Err(OpenError::Device(error)) if goes_home(&cache) => {
                tracing::warn!(
                    volume = %self.name, %error,
                    "the fast device takes no writes: its dirty data go to the slow device"
                );
                self.put_to_work(&cache);
                *self.cache.borrow_mut() = Some(cache);
                Ok(())
            }
            Err(error) => {
                *self.cache.borrow_mut() = None;
                self.quiet(&cache).await;
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Refuses blocks so big that the cache would not hold one.
    fn check_block(&self, fast: &str, slots: u32) -> Result<(), OpenError> {
        let block = self.settings.borrow().block;
        blocks_fit(fast, block, slots)
    }

    pub(crate) fn check_block_for(&self, cache: &Cache, block: Bytes) -> Result<(), OpenError> {
        blocks_fit(&cache.fast.info().name, block, cache.slots.borrow().total())
    }

    /// The configuration may ask for another size than the cache had.
    async fn resize_at_open(self: &Rc<Self>, wanted: Option<Bytes>) -> Result<(), OpenError> {
        let Some(cache) = self.live_cache() else {
            return Ok(());
        };
        let (slots_now, slots_max) = {
            let label = cache.label.borrow();
            (label.slots, label.slots_max)
        };
        let slots = wanted.map_or(slots_max, |bytes| {
            (bytes.0 / PAGE).min(u64::from(slots_max)) as u32
        });
        if slots == slots_now || slots < 64 {
            return Ok(());
        }
        self.change_size(&cache, slots).await
    }

    fn check_size(&self, fast: &str, label: &Label) -> Result<(), OpenError> {
        if label.slow_size != self.slow.info.size {
            return Err(OpenError::WrongSlow {
                fast: fast.to_owned(),
                expected: label.slow_size,
                slow: self.slow.info.name.clone(),
                size: self.slow.info.size,
            });
        }
        Ok(())
    }

    /// Changes the number of slots in use; no request is under way.
    async fn change_size(self: &Rc<Self>, cache: &Rc<Cache>, slots: u32) -> Result<(), OpenError> {
        let settings = self.settings.borrow().clone();
        let pages_per_block = settings.block.0 / PAGE;
        if slots == cache.label.borrow().slots {
            return Ok(());
        }
        self.check_block(&cache.fast.info().name, slots)?;
        let _halt = self.halt_moves(cache).await;
        if slots > cache.slots.borrow().total() {
            // The label first: entries behind the old end must be legal before there are any.
            cache.label.change(Change::Slots(slots)).await?;
            cache.slots.borrow_mut().grow(slots);
            cache
                .map
                .borrow_mut()
                .resize(slots, settings.policy, pages_per_block);
        } else {
            cache.quiesce_fills().await;
            self.destage_all(cache).await?;
            cache.slots.borrow_mut().withdraw(slots);
            cache.drop_slots_from(slots);
            cache.committed().await?;
            if let Err(error) = cache.label.change(Change::Slots(slots)).await {
                // One copy may name the new end already: slots behind it must hold nothing from now on.
                cache.fail(error.clone()).await;
                return Err(error.into());
            }
            cache.slots.borrow_mut().shrink(slots);
            cache
                .map
                .borrow_mut()
                .resize(slots, settings.policy, pages_per_block);
        }
        cache.set_room(slots, pages_per_block);
        cache.no_fills.set(false);
        self.fit_tier(cache);
        Ok(())
    }
}

/// The volume goes on without its cache because of `error`.
fn gone(volume: &str, error: &OpenError) -> DeviceError {
    DeviceError::Gone {
        device: volume.to_owned(),
        op: device::Op::Write,
        why: error.to_string(),
    }
}

/// Did the fast device fail in a way that the volume can go on with: dirty data are destaged, or nothing is dirty?
fn goes_home(cache: &Cache) -> bool {
    match &*cache.condition.borrow() {
        Condition::Evacuating(_) => cache.failing_noted.get(),
        Condition::PassThrough(_) => true,
        Condition::Running | Condition::Failed(_) => false,
    }
}

/// The fingerprint of one page of the slow device; none if the page cannot be read, which says nothing about what
/// is on it.
async fn sample_if_readable(slow: &dyn Device, page: u64) -> Result<Option<u32>, DeviceError> {
    match sample_crc(slow, page).await {
        Ok(crc) => Ok(Some(crc)),
        Err(gone @ DeviceError::Gone { .. }) => Err(gone),
        Err(error) => {
            tracing::warn!(page, %error, "a page of the slow device could not be compared");
            Ok(None)
        }
    }
}

fn blocks_fit(fast: &str, block: Bytes, slots: u32) -> Result<(), OpenError> {
    let room = Bytes(u64::from(slots - spare_for(slots)) * PAGE);
    if room >= block {
        return Ok(());
    }
    Err(OpenError::BlockTooBig {
        fast: fast.to_owned(),
        block,
        room,
    })
}
