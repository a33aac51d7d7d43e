//! The policies that are raced.

use locks::pattern::{AnyLock, Lock, Policy};

use crate::exit::Failure;

/// A policy as named on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Contender {
    Ours(Policy),
    ParkingLot,
}

impl Contender {
    pub fn all() -> Vec<Contender> {
        Policy::ALL.into_iter().map(Contender::Ours).chain([Contender::ParkingLot]).collect()
    }

    pub fn name(self) -> &'static str {
        match self {
            Contender::Ours(policy) => policy.name(),
            Contender::ParkingLot => "parking_lot",
        }
    }

    pub fn parse(text: &str) -> Result<Contender, Failure> {
        let all = Contender::all();
        all.iter().find(|c| c.name() == text.trim()).copied().ok_or_else(|| {
            let names: Vec<_> = all.iter().map(|c| c.name()).collect();
            Failure::usage(format!("no policy {text:?}: there are {}", names.join(", ")))
        })
    }

    pub fn lock(self) -> Raced {
        match self {
            Contender::Ours(policy) => Raced::Ours(policy.lock()),
            Contender::ParkingLot => Raced::ParkingLot(parking_lot::Mutex::new(())),
        }
    }
}

pub enum Raced {
    Ours(AnyLock),
    ParkingLot(parking_lot::Mutex<()>),
}

impl Lock for Raced {
    #[inline]
    fn hold<R>(&self, inside: impl FnOnce() -> R) -> R {
        match self {
            Raced::Ours(lock) => lock.hold(inside),
            Raced::ParkingLot(lock) => {
                let _guard = lock.lock();
                inside()
            }
        }
    }
}
