//! The system calls that only this crate makes: loop devices, mounts, and trees of files reached by descriptors.

pub(crate) mod block;
pub(crate) mod loopdev;
pub(crate) mod mount;
pub(crate) mod mountinfo;
