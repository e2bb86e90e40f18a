//! Locks that count, for each thread, what it holds to change it.
//!
//! `parking_lot`'s, which do not poison: a panic while one of these is held ends the process instead
//! (`failstop`), so nobody ever sees what was half changed. A lock held only to read does not count.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

thread_local! {
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is changing shared state.
pub(crate) fn is_held() -> bool {
    HELD.get() != 0
}

/// One lock of this thread.
struct Held;

impl Held {
    fn begin() -> Held {
        HELD.set(HELD.get() + 1);
        Held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}

#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

/// Stays on its thread, as the guards in it do.
pub struct MutexGuard<'a, T> {
    inner: parking_lot::MutexGuard<'a, T>,
    _held: Held,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { inner: self.0.lock(), _held: Held::begin() }
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }

    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
        let _ = self.0.wait_for(&mut guard.inner, time);
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[derive(Debug, Default)]
pub struct RwLock<T>(parking_lot::RwLock<T>);

pub struct RwLockWriteGuard<'a, T> {
    inner: parking_lot::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(parking_lot::RwLock::new(value))
    }

    pub fn read(&self) -> parking_lot::RwLockReadGuard<'_, T> {
        self.0.read()
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard { inner: self.0.write(), _held: Held::begin() }
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_to_change_it_counts_until_the_last_guard_goes() {
        let (one, other) = (Mutex::new(1), RwLock::new(2));
        let first = one.lock();
        let second = other.write();
        assert!(is_held());
        drop(first);
        assert!(is_held());
        drop(second);
        assert!(!is_held());
        assert_eq!(*other.read(), 2);
    }

    #[test]
    fn what_is_held_to_read_or_by_another_thread_does_not_count() {
        let lock = RwLock::new(1);
        let read = lock.read();
        assert!(!is_held());
        drop(read);
        let _write = lock.write();
        std::thread::scope(|scope| scope.spawn(|| assert!(!is_held())).join()).expect("no panic");
    }
}
