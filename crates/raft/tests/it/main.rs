//! Tests of the crate from outside. One binary, so that it is linked once.

mod log_driver;
mod log_store_cost;
mod log_store_crash;
mod log_store_damage;
mod log_store_failure;
mod log_store_hostile;
mod log_store_kill;
mod log_store_model;
mod log_store_order;
mod log_store_reopen;
mod log_store_suite;
mod sim_disk;
