//! The bound on bytes of request bodies held at once.

use std::sync::Arc;
use std::time::Duration;

use kvasir_core::{ErrorKind, RouterError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes one permit stands for; semaphores count in u32.
const UNIT: usize = 1024;

/// Bodies whose decoded bytes are not counted yet.
const DECODING: usize = 2;

/// How long reading pauses for others' bodies to leave before the client is told to come back.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A budget of bytes, shared by all requests.
#[derive(Clone, Debug)]
pub struct ByteBudget {
    units: Arc<Semaphore>,
    limit_units: usize,
    decoding: Arc<Semaphore>,
}

/// Bytes held; given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct HeldBytes {
    permit: Option<OwnedSemaphorePermit>,
    units: usize,
}

impl ByteBudget {
    /// At most `bytes` at once.
    pub fn new(bytes: usize) -> Self {
        let limit_units = (bytes / UNIT).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Self {
            units: Arc::new(Semaphore::new(limit_units)),
            limit_units,
            decoding: Arc::new(Semaphore::new(DECODING)),
        }
    }

    /// A turn to decode one body. Its size is known only afterwards, so few may be decoded at once.
    pub(crate) async fn decoding_turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.decoding).acquire_owned().await.ok()
    }

    /// Bytes held now.
    pub fn held(&self) -> usize {
        (self.limit_units - self.units.available_permits().min(self.limit_units)) * UNIT
    }

    /// Makes `held` cover `bytes` in all, waiting a while for room.
    ///
    /// # Errors
    /// [`ErrorKind::BuffersFull`] when no room came free in time or `bytes` is more than the whole budget.
    pub(crate) async fn cover(&self, held: &mut HeldBytes, bytes: usize) -> Result<(), RouterError> {
        let wanted = bytes.div_ceil(UNIT);
        let Some(more) = wanted.checked_sub(held.units).filter(|more| *more > 0) else { return Ok(()) };
        if wanted > self.limit_units {
            return Err(ErrorKind::BuffersFull.into());
        }
        let more_permits = u32::try_from(more).map_err(|_| ErrorKind::BuffersFull)?;
        let acquire = Arc::clone(&self.units).acquire_many_owned(more_permits);
        let permit = match tokio::time::timeout(LONGEST_PAUSE, acquire).await {
            Ok(Ok(permit)) => permit,
            _ => return Err(ErrorKind::BuffersFull.into()),
        };
        held.add(permit, wanted);
        Ok(())
    }

    /// Makes `held` cover `bytes` in all, if there is room now.
    pub(crate) fn try_cover(&self, held: &mut HeldBytes, bytes: usize) -> bool {
        let wanted = bytes.div_ceil(UNIT);
        let Some(more) = wanted.checked_sub(held.units).filter(|more| *more > 0) else { return true };
        let permits = u32::try_from(more).ok();
        let permit = permits.and_then(|more| Arc::clone(&self.units).try_acquire_many_owned(more).ok());
        let Some(permit) = permit else { return false };
        held.add(permit, wanted);
        true
    }
}

impl HeldBytes {
    fn add(&mut self, permit: OwnedSemaphorePermit, units: usize) {
        match &mut self.permit {
            Some(first) => first.merge(permit),
            None => self.permit = Some(permit),
        }
        self.units = units;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reading_pauses_then_gives_up_and_room_comes_back() {
        let budget = ByteBudget::new(10 * UNIT);
        let mut first = HeldBytes::default();
        budget.cover(&mut first, 6 * UNIT).await.unwrap();
        budget.cover(&mut first, 8 * UNIT).await.unwrap();
        assert_eq!(budget.held(), 8 * UNIT);
        let mut second = HeldBytes::default();
        assert_eq!(budget.cover(&mut second, 4 * UNIT).await.unwrap_err().kind, ErrorKind::BuffersFull);
        assert!(!budget.try_cover(&mut second, 4 * UNIT) && budget.try_cover(&mut second, 2 * UNIT));
        assert!(budget.try_cover(&mut second, 2 * UNIT) && budget.held() == 10 * UNIT);
        drop(first);
        budget.cover(&mut second, 4 * UNIT).await.unwrap();
        assert_eq!(
            budget.cover(&mut HeldBytes::default(), 11 * UNIT).await.unwrap_err().kind,
            ErrorKind::BuffersFull
        );
    }
}
