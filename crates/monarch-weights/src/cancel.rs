use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A flag that stops a load. Clones share it; once set it stays set.
///
/// Loading looks at it between chunks. A [`Source`](crate::Source) that can be stuck waiting for
/// the network registers with [`Cancel::on_cancel`] as well, so that it is woken at once.
#[derive(Clone, Default)]
pub struct Cancel(Rc<Shared>);

#[derive(Default)]
struct Shared {
    cancelled: Cell<bool>,
    next_id: Cell<u64>,
    listeners: RefCell<Vec<Listener>>,
}

struct Listener {
    id: u64,
    run: Box<dyn FnOnce()>,
}

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag and runs the registered listeners, each once.
    pub fn cancel(&self) {
        self.0.cancelled.set(true);
        // Taken out first: a listener may drop its own registration.
        let listeners = self.0.listeners.take();
        for listener in listeners {
            (listener.run)();
        }
    }

    /// Whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.get()
    }

    /// Runs `listener` when the flag is set, at once if it already is, until the registration is
    /// dropped.
    #[must_use = "dropping the registration removes the listener"]
    pub fn on_cancel(&self, listener: impl FnOnce() + 'static) -> CancelRegistration {
        let id = self.0.next_id.get();
        self.0.next_id.set(id + 1);
        if self.is_cancelled() {
            listener();
        } else {
            self.0.listeners.borrow_mut().push(Listener {
                id,
                run: Box::new(listener),
            });
        }
        CancelRegistration {
            cancel: self.clone(),
            id,
        }
    }
}

impl std::fmt::Debug for Cancel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cancel")
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// A listener's place in a [`Cancel`]; dropping it removes the listener.
#[derive(Debug)]
pub struct CancelRegistration {
    cancel: Cancel,
    id: u64,
}

impl Drop for CancelRegistration {
    fn drop(&mut self) {
        let mut listeners = self.cancel.0.listeners.borrow_mut();
        listeners.retain(|listener| listener.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter() -> (Rc<Cell<u32>>, impl FnOnce() + 'static) {
        let count = Rc::new(Cell::new(0));
        let shared = Rc::clone(&count);
        (count, move || shared.set(shared.get() + 1))
    }

    #[test]
    fn clones_share_the_flag() {
        let cancel = Cancel::new();
        let clone = cancel.clone();
        assert!(!clone.is_cancelled());
        cancel.cancel();
        assert!(clone.is_cancelled());
    }

    #[test]
    fn listener_runs_once() {
        let cancel = Cancel::new();
        let (count, listener) = counter();
        let _registration = cancel.on_cancel(listener);
        assert_eq!(count.get(), 0);
        cancel.cancel();
        cancel.cancel();
        assert_eq!(count.get(), 1);
    }

    #[test]
    fn late_listener_runs_at_once() {
        let cancel = Cancel::new();
        cancel.cancel();
        let (count, listener) = counter();
        let _registration = cancel.on_cancel(listener);
        assert_eq!(count.get(), 1);
    }

    #[test]
    fn dropped_registration_removes_only_its_own_listener() {
        let cancel = Cancel::new();
        let (dropped, listener) = counter();
        let registration = cancel.on_cancel(listener);
        let (kept, listener) = counter();
        let _registration = cancel.on_cancel(listener);
        drop(registration);
        cancel.cancel();
        assert_eq!((dropped.get(), kept.get()), (0, 1));
    }

    #[test]
    fn listener_may_use_the_flag_that_calls_it() {
        let cancel = Cancel::new();
        let inner = cancel.clone();
        let _registration = cancel.on_cancel(move || {
            assert!(inner.is_cancelled());
            drop(inner.on_cancel(|| ()));
        });
        cancel.cancel();
    }
}
