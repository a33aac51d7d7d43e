//! Stacks, samples and interrupts.

use super::Engine;

use trace::{Event, IrqKind, LockId, SampleMode, StackId, TaskId};

use crate::account::End;

impl Engine {
    pub(super) fn wait_stack(
        &mut self,
        task: TaskId,
        lock: Option<LockId>,
        kernel: Option<StackId>,
        user: Option<StackId>,
        weight_ns: u64,
    ) {
        let slot = &self.tasks[task.index()];
        let end = match (lock, &slot.wait) {
            (Some(lock), _) => Some(End::Lock(lock)),
            // within the wait for a lock the stack comes at its end
            (None, Some(wait)) if wait.contention => None,
            (None, Some(wait)) => Some(wait.end()),
            (None, None) => slot.last_wait,
        };
        if let (Some(end), Some(kernel)) = (end, kernel) {
            saturating(self.account.paths.entry((end, kernel, slot.in_scope)).or_default(), weight_ns);
        }
        let sums = self.account.off_cpu.entry((task, kernel, user)).or_default();
        saturating(&mut sums.0, weight_ns);
        sums.1 += 1;
    }

    pub(super) fn sample(
        &mut self,
        task: TaskId,
        mode: SampleMode,
        kernel: Option<StackId>,
        user: Option<StackId>,
        weight_ns: u64,
    ) {
        let account = &mut self.account;
        let now = self.clock.now.t;
        let slot = &mut self.tasks[task.index()];
        account.sampled = true;
        if slot.idle {
            return;
        }
        if mode != SampleMode::Interrupt {
            let sums = account.on_cpu.entry((task, kernel, user)).or_default();
            saturating(&mut sums.0, weight_ns);
            sums.1 += 1;
        }
        if let Some(kernel) = kernel {
            for lock in &slot.holding {
                saturating(account.under.entry((*lock, task, kernel)).or_default(), weight_ns);
            }
            slot.note_sample(now, kernel, weight_ns);
        }
        if !slot.in_scope {
            return;
        }
        match mode {
            SampleMode::User => account.user.add(weight_ns),
            SampleMode::Kernel => account.kernel.entry(kernel).or_default().add(weight_ns),
            SampleMode::Interrupt => account.interrupt.add(weight_ns),
        }
        if mode == SampleMode::Kernel {
            let spun = slot.spin.map(|s| s.0).or(slot.wait.as_ref().and_then(|w| w.lock));
            if let Some(lock) = spun {
                saturating(&mut account.end(End::Lock(lock)).spin_samples_ns, weight_ns);
            }
        }
    }

    pub(super) fn interrupt(&mut self, event: &Event, irq: IrqKind, enter: bool) {
        let _ = irq;
        self.account.irq_events = true;
        let allowed = self.is_allowed(event.cpu);
        let slot = self.cpu(event.cpu);
        if enter {
            if slot.irq_depth == 0 {
                slot.irq_from = event.time;
            }
            slot.irq_depth = slot.irq_depth.saturating_add(1);
        } else if slot.irq_depth > 0 {
            slot.irq_depth -= 1;
            if slot.irq_depth == 0 && allowed {
                let ns = event.time.since(slot.irq_from);
                self.account.irq_ns += ns;
            }
        }
    }
}

/// Adds a weight; those of a hostile trace stay at the largest number.
pub(super) fn saturating(sum: &mut u64, weight_ns: u64) {
    *sum = sum.saturating_add(weight_ns);
}
