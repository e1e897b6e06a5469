//! The packet-level simulator as a C library, for other simulators that know what their hosts send. `pathloom_net.h`
//! documents the functions; docs/astra-sim.md has ASTRA-sim as an example.
//!
//! Each function checks its arguments, and no panic leaves the library. Callbacks are called while nothing of the network is
//! borrowed, so they may call the other functions.

#![allow(unsafe_code)] // It is called from C.
#![warn(clippy::undocumented_unsafe_blocks)]

mod error;
mod matching;
mod network;
mod settings;

use error::{report, NetError};
use matching::Key;
use network::{Network, Step};
use pathloom_model::Nanos;
use settings::Texts;
use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// `PATHLOOM_NET_ABI` of the header.
pub(crate) const ABI: u32 = 1;

/// What a program passes to be called back.
type Callback = Option<unsafe extern "C" fn(*mut c_void)>;

/// A callback with its context.
struct Call {
    callback: Callback,
    context: *mut c_void,
}

/// `pathloom_net` of the header.
pub struct PathloomNet {
    network: RefCell<Network<Call>>,
    /// Whether it runs: it is called by a callback.
    running: Cell<bool>,
    /// Whether a call has panicked. What the network contains is then unknown.
    failed: Cell<bool>,
}

/// `struct pathloom_net_settings` of the header.
#[repr(C)]
pub struct Settings {
    abi: u32,
    fabric: *const c_char,
    scheme: *const c_char,
    transport: *const c_char,
    control: *const c_char,
    faults: *const c_char,
    seed: u64,
    end_ns: u64,
}

/// `struct pathloom_net_totals` of the header.
#[repr(C)]
pub struct Totals {
    messages: u64,
    packets: u64,
    dropped: u64,
    hops: u64,
    events: u64,
}

/// Carries a call out. A panic becomes an error.
fn guarded(call: impl FnOnce() -> Result<(), NetError>) -> Result<(), NetError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(NetError::Failed(text.unwrap_or_else(|| "a panic".to_owned())))
    })
}

/// Carries a call on a network out. Returns the code of the result.
///
/// # Safety
/// `net` must be null or come from [`pathloom_net_new`] and not be freed.
unsafe fn with(net: *const PathloomNet, call: impl FnOnce(&PathloomNet) -> Result<(), NetError>) -> c_int {
    // SAFETY: the caller guarantees it. Only shared references are made, so callbacks may use the network as well.
    let Some(net) = (unsafe { net.as_ref() }) else {
        return report(Err(NetError::Null("net", "a network of pathloom_net_new")));
    };
    if net.failed.get() {
        return report(Err(NetError::Failed("an earlier call on this network has failed".to_owned())));
    }
    let result = guarded(|| call(net));
    net.failed.set(matches!(result, Err(NetError::Failed(_))));
    report(result)
}

/// As [`with`], for functions that return a number; 0 if `net` is null or has failed.
///
/// # Safety
/// As [`with`].
unsafe fn number(net: *const PathloomNet, of: impl FnOnce(&Network<Call>) -> u64) -> u64 {
    // SAFETY: as in `with`.
    let net = unsafe { net.as_ref() }.filter(|net| !net.failed.get());
    let found = net.map(|net| catch_unwind(AssertUnwindSafe(|| of(&net.network.borrow()))));
    found.and_then(Result::ok).unwrap_or(0)
}

/// The text at a pointer; `None` if it is null.
///
/// # Safety
/// `text` must be null or a text that ends with 0 and outlives `'a`.
unsafe fn text<'a>(what: &'static str, text: *const c_char) -> Result<Option<&'a str>, NetError> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees the end.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| NetError::NotText(what))
}

/// See the header.
#[no_mangle]
pub extern "C" fn pathloom_net_abi() -> u32 {
    ABI
}

/// See the header.
///
/// # Safety
/// `settings` must point to settings whose texts end with 0, and `net` to room for a pointer.
#[no_mangle]
pub unsafe extern "C" fn pathloom_net_new(settings: *const Settings, net: *mut *mut PathloomNet) -> c_int {
    report(guarded(|| {
        // SAFETY: the caller guarantees both pointers, if they are not null.
        let (settings, net) = unsafe { (settings.as_ref(), net.as_mut()) };
        let settings = settings.ok_or(NetError::Null("settings", "a struct pathloom_net_settings"))?;
        let net = net.ok_or(NetError::Null("net", "room for a pointer"))?;
        if settings.abi != ABI {
            return Err(NetError::Version(settings.abi));
        }
        // SAFETY: the caller guarantees that the texts end with 0.
        let texts = unsafe {
            Texts {
                fabric: text("fabric", settings.fabric)?
                    .ok_or(NetError::Null("fabric of the settings", "a text such as fat-tree:k=4"))?,
                scheme: text("scheme", settings.scheme)?,
                transport: text("transport", settings.transport)?,
                control: text("control", settings.control)?,
                faults: text("faults", settings.faults)?,
                seed: settings.seed,
                end: Nanos(settings.end_ns),
            }
        };
        let network = RefCell::new(Network::new(texts.read()?)?);
        *net = Box::into_raw(Box::new(PathloomNet { network, running: Cell::new(false), failed: Cell::new(false) }));
        Ok(())
    }))
}

/// See the header.
///
/// # Safety
/// `net` must be null or come from [`pathloom_net_new`] and not be freed before.
#[no_mangle]
pub unsafe extern "C" fn pathloom_net_free(net: *mut PathloomNet) -> c_int {
    // SAFETY: the caller guarantees it.
    match unsafe { net.as_ref() } {
        None => return 0,
        Some(net) if net.running.get() => return report(Err(NetError::Busy("pathloom_net_free"))),
        Some(_) => {}
    }
    report(guarded(|| {
        // SAFETY: it comes from `Box::into_raw`, nobody has freed it, and nothing is borrowed, because it does not run.
        drop(unsafe { Box::from_raw(net) });
        Ok(())
    }))
}

/// See the header.
///
/// # Safety
/// As for all functions of a network: `net` must be null or come from [`pathloom_net_new`] and not be freed.
#[no_mangle]
pub unsafe extern "C" fn pathloom_net_ranks(net: *const PathloomNet) -> u32 {
    // SAFETY: the caller guarantees it.
    unsafe { number(net, |network| network.ranks() as u64) as u32 }
}

/// See the header.
///
/// # Safety
/// As [`pathloom_net_ranks`].
#[no_mangle]
pub unsafe extern "C" fn pathloom_net_rate_bps(net: *const PathloomNet, rank: u32) -> u64 {
    // SAFETY: the caller guarantees it.
    unsafe { number(net, |network| network.rate_bps(rank)) }
}

/// See the header.
///
/// # Safety
/// As [`pathloom_net_ranks`].
#[no_mangle]
pub unsafe extern "C" fn pathloom_net_now_ns(net: *const PathloomNet) -> u64 {
    // SAFETY: the caller guarantees it.
    unsafe { number(net, |network| network.now().0) }
}

/// See the header.
///
/// # Safety
/// As [`pathloom_net_ranks`].
#[no_mangle]
pub unsafe extern "C" fn pathloom_net_pending(net: *const PathloomNet) -> u64 {
    // SAFETY: the caller guarantees it.
    unsafe { number(net, |network| network.pending() as u64) }
}

/// See the header.
///
/// # Safety
/// As [`pathloom_net_ranks`]; `sent` must be a function that may be called with `context` until the network is freed.
#[no_mangle]
pub unsafe extern "C" fn pathloom_net_send(
    net: *mut PathloomNet,
    src: u32,
    dst: u32,
    bytes: u64,
    tag: i64,
    sent: Callback,
    context: *mut c_void,
) -> c_int {
    let (key, call) = (Key { src, dst, tag, bytes }, Call { callback: sent, context });
    // SAFETY: the caller guarantees it.
    unsafe { with(net, |net| net.network.borrow_mut().send(key, call)) }
}

/// See the header.
///
/// # Safety
/// As [`pathloom_net_send`].
#[no_mangle]
pub unsafe extern "C" fn pathloom_net_recv(
    net: *mut PathloomNet,
    src: u32,
    dst: u32,
    bytes: u64,
    tag: i64,
    received: Callback,
    context: *mut c_void,
) -> c_int {
    let (key, call) = (Key { src, dst, tag, bytes }, Call { callback: received, context });
    // SAFETY: the caller guarantees it.
    unsafe { with(net, |net| net.network.borrow_mut().receive(key, call)) }
}

/// See the header.
///
/// # Safety
/// As [`pathloom_net_send`].
#[no_mangle]
pub unsafe extern "C" fn pathloom_net_schedule(
    net: *mut PathloomNet,
    delay_ns: u64,
    due: Callback,
    context: *mut c_void,
) -> c_int {
    let schedule = |net: &PathloomNet| {
        net.network.borrow_mut().schedule(Nanos(delay_ns), Call { callback: due, context });
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    unsafe { with(net, schedule) }
}

/// See the header.
///
/// # Safety
/// As [`pathloom_net_send`], for all callbacks.
#[no_mangle]
pub unsafe extern "C" fn pathloom_net_run(net: *mut PathloomNet) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { with(net, |net| run(net, "pathloom_net_run", None)) }
}

/// See the header.
///
/// # Safety
/// As [`pathloom_net_send`], for all callbacks.
#[no_mangle]
pub unsafe extern "C" fn pathloom_net_run_until(net: *mut PathloomNet, until_ns: u64) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { with(net, |net| run(net, "pathloom_net_run_until", Some(Nanos(until_ns)))) }
}

/// Runs a network, and calls back.
fn run(net: &PathloomNet, name: &'static str, until: Option<Nanos>) -> Result<(), NetError> {
    if net.running.replace(true) {
        return Err(NetError::Busy(name));
    }
    let result = guarded(|| loop {
        let step = net.network.borrow_mut().next(until)?;
        let Step::Call(Call { callback, context }) = step else { return Ok(()) };
        if let Some(callback) = callback {
            // SAFETY: who passed the callback guarantees that it may be called with this context. Nothing is borrowed.
            unsafe { callback(context) };
        }
        if net.failed.get() {
            return Err(NetError::Failed("a call of a callback has failed".to_owned()));
        }
    });
    net.running.set(false);
    result
}

/// See the header.
///
/// # Safety
/// As [`pathloom_net_ranks`]; `totals` must be null or point to a `struct pathloom_net_totals`.
#[no_mangle]
pub unsafe extern "C" fn pathloom_net_count(net: *const PathloomNet, totals: *mut Totals) -> c_int {
    let count = |net: &PathloomNet| {
        // SAFETY: the caller guarantees it.
        let totals = unsafe { totals.as_mut() }.ok_or(NetError::Null("totals", "a struct pathloom_net_totals"))?;
        let network = net.network.borrow();
        let packets = network.packets();
        let (messages, dropped, hops, events) = (network.messages(), packets.dropped, packets.hops, packets.events);
        *totals = Totals { messages, packets: packets.sent, dropped, hops, events };
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    unsafe { with(net, count) }
}

/// See the header.
#[no_mangle]
pub extern "C" fn pathloom_net_error() -> *const c_char {
    error::last()
}
