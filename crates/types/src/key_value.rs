//! One version of one key, as readers see it.

use crate::{LeaseId, Revision};
use bytes::Bytes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Bytes,
    pub value: Bytes,
    /// When this life of the key began.
    pub created: Revision,
    /// When this version was written.
    pub modified: Revision,
    /// 1 for the first version of this life of the key.
    pub version: i64,
    pub lease: Option<LeaseId>,
}
