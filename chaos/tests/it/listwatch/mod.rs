//! Unmodified clients of Kubernetes against the list-watch door.

mod kube_rs;
mod kubectl;
mod python;
mod restore;
