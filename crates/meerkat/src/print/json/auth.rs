//! Answers about users and roles, alarms and downgrades, as JSON.

use meerkat_proto::pb::auth::Permission;
use meerkat_proto::pb::etcdserver as pb;
use serde::Serialize;

use super::super::AuthAnswer;
use super::{Header, base64, header, is_zero, text};

pub(super) fn text_of(answer: &AuthAnswer) -> String {
    match answer {
        AuthAnswer::Done { header, .. } => header_alone(header),
        AuthAnswer::Status(response) => text(&Status {
            header: header(&response.header),
            enabled: response.enabled,
            auth_revision: response.auth_revision,
        }),
        AuthAnswer::User { response, .. } => {
            text(&User { header: header(&response.header), roles: &response.roles })
        }
        AuthAnswer::Users(response) => {
            text(&Users { header: header(&response.header), users: &response.users })
        }
        AuthAnswer::Role { response, .. } => text(&Role {
            header: header(&response.header),
            perm: response.perm.iter().map(Perm::from).collect(),
        }),
        AuthAnswer::Roles(response) => {
            text(&User { header: header(&response.header), roles: &response.roles })
        }
    }
}

pub(super) fn header_alone(of: &Option<pb::ResponseHeader>) -> String {
    text(&Done { header: header(of) })
}

pub(super) fn alarms(response: &pb::AlarmResponse) -> String {
    let row = |alarm: &pb::AlarmMember| Alarm { member_id: alarm.member_id, alarm: alarm.alarm };
    text(&Alarms { header: header(&response.header), alarms: response.alarms.iter().map(row).collect() })
}

pub(super) fn downgrade(response: &pb::DowngradeResponse) -> String {
    text(&Downgrade { header: header(&response.header), version: &response.version })
}

#[derive(Serialize)]
struct Done {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
}

#[derive(Serialize)]
struct Status {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(skip_serializing_if = "is_zero")]
    enabled: bool,
    #[serde(rename = "authRevision", skip_serializing_if = "is_zero")]
    auth_revision: u64,
}

#[derive(Serialize)]
struct User<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    roles: &'a [String],
}

#[derive(Serialize)]
struct Users<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    users: &'a [String],
}

#[derive(Serialize)]
struct Role<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    perm: Vec<Perm<'a>>,
}

#[derive(Serialize)]
struct Perm<'a> {
    #[serde(rename = "permType", skip_serializing_if = "is_zero")]
    perm_type: i32,
    #[serde(skip_serializing_if = "<[u8]>::is_empty", serialize_with = "base64")]
    key: &'a [u8],
    #[serde(skip_serializing_if = "<[u8]>::is_empty", serialize_with = "base64")]
    range_end: &'a [u8],
}

impl<'a> From<&'a Permission> for Perm<'a> {
    fn from(permission: &'a Permission) -> Perm<'a> {
        Perm { perm_type: permission.perm_type, key: &permission.key, range_end: &permission.range_end }
    }
}

#[derive(Serialize)]
struct Alarms {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alarms: Vec<Alarm>,
}

#[derive(Serialize)]
struct Alarm {
    #[serde(rename = "memberID", skip_serializing_if = "is_zero")]
    member_id: u64,
    #[serde(skip_serializing_if = "is_zero")]
    alarm: i32,
}

#[derive(Serialize)]
struct Downgrade<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
}
