//! Reads from the kernel what every task did: BPF programs, loader, symbols, lock names.

mod btf;
mod error;
mod layout;
mod loader;
mod machine;
mod sys;

pub use error::Error;

#[cfg(test)]
mod load_test {
    use super::*;
    #[test]
    fn loads() {
        let t = std::time::Instant::now();
        let b = btf::Btf::kernel().unwrap();
        println!("btf {:?}", t.elapsed());
        let plan = loader::Plan {
            options: layout::RawOptions {
                event_mask: 0, big_mask: 0, want_events: 1, wait_stacks: 1, out_kernel_stacks: 1, out_user_stacks: 1, waker_stacks: 1,
                user_stacks: 1, lock_waits_apart: 1, describe_locks: 1, switch_has_state: 1, irq_known: 1, pad: [0; 2], base_shift: 17,
                stack_limit: 256, max_frames: 127, futex_nr: 202, filter: 0, min_ns: 0, max_ns: u64::MAX, state_mask: -1 },
            events_per_cpu: 1 << 17, bigs_per_cpu: 4096, cpus: machine::possible_cpus(), wanted: vec![], sample_hz: 99, interrupts: true,
            work: true, contention: true, waking: true, xfs_detail: true, names: true };
        let (mut l, _) = match loader::Loaded::load(&b, plan) { Ok(x) => x, Err(e) => panic!("{e}") };
        println!("load {:?}", t.elapsed());
        if let Err(e) = l.attach(99) { panic!("{e}") }
        println!("attach {:?} {:?}", t.elapsed(), l.missing);
        let seeds = l.iterate("seed_tasks").unwrap();
        println!("seeds {} {:?}", seeds.len() / std::mem::size_of::<layout::TaskSeed>(), t.elapsed());
        std::thread::sleep(std::time::Duration::from_millis(500));
        let w = l.iterate("last_waits").unwrap();
        println!("last {}", w.len() / std::mem::size_of::<layout::RawBig>());
        l.detach();
        println!("detach {:?} misses {}", t.elapsed(), l.recursion_misses());
        for c in 0..l.cpus { println!("{:?}", l.areas.read(c)); }
        let mut kinds = std::collections::BTreeMap::new();
        for c in 0..l.cpus { let a = l.areas.read(c); for i in 0..a.head.min(1<<17) { let e = l.events.read(c * (1<<17) + i as usize); *kinds.entry(e.kind).or_insert(0) += 1; } 
          for i in 0..a.big_head.min(4096) { let e = l.bigs.read(c * 4096 + i as usize); *kinds.entry(100 + e.kind).or_insert(0) += 1; } }
        println!("{kinds:?}");
    }
}
