//! In which form an answer is given and a body is read.
//!
//! A client names the forms that it takes, most wanted first; the first that the target can be given in
//! is the one. A clause that asks for a form there is not is passed over, which is how old and new
//! clients and servers go together; only when no clause is left is the request refused. A body's form
//! is never guessed: what is not known is refused.

use crate::accept::{MediaRange, accept_clauses, media_range};
use crate::excerpt::excerpt;
use crate::metadata_form::MetaVersion;
use crate::registry::Kind;
use crate::status::{Reason, Refusal};

/// How an object is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    Json,
    Yaml,
    Protobuf,
    Cbor,
    /// A whole OpenAPI document, version 2.
    OpenApiV2Protobuf,
    /// A whole OpenAPI document, version 3.
    OpenApiV3Protobuf,
}

/// What is shown of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All of it, as its kind has it.
    Whole,
    /// Rows and columns for people.
    Table(MetaVersion),
    /// One object's metadata.
    PartialMetadata(MetaVersion),
    /// The metadata of each object of a list.
    PartialMetadataList(MetaVersion),
    /// All groups with all their resources in one document.
    AggregatedDiscovery(DiscoveryVersion),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryVersion {
    V2,
    V2Beta1,
}

impl DiscoveryVersion {
    pub fn as_str(self) -> &'static str {
        match self {
            DiscoveryVersion::V2 => "v2",
            DiscoveryVersion::V2Beta1 => "v2beta1",
        }
    }
}

/// What kind of answer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A Status, or an object without any other shape.
    Plain,
    One,
    /// One that is answered and not kept: no rows are made of it.
    Review,
    List,
    Watch,
    /// `/api` and `/apis`.
    Discovery,
}

/// What the target can be given in.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    pub answer: Answer,
    /// For whole objects. The first is what a client gets that does not care.
    pub whole: &'a [Media],
    /// For the metadata alone, of which every kind's has the same fields.
    pub metadata: &'a [Media],
}

/// What is answered in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    pub answer: Answer,
    pub media: Media,
    pub shape: Shape,
    /// The header itself asks for an indented answer.
    pretty: bool,
}

/// `accept`: the header, empty if there is none.
pub fn negotiate(accept: &str, offer: &Offer<'_>) -> Result<Form, Refusal> {
    let clauses = if accept.trim().is_empty() { accept_clauses("*/*") } else { accept_clauses(accept) };
    clauses.iter().find_map(|clause| offer.form_for(clause)).ok_or_else(|| offer.not_acceptable())
}

/// `content_type`: the header, empty if there is none. `readable`: what the target's bodies can be read in.
pub fn body_media(content_type: &str, readable: &[Media]) -> Result<Media, Refusal> {
    if content_type.trim().is_empty() {
        return Ok(Media::Json);
    }
    let given = media_range(content_type);
    let named = |media: &&Media| given.as_ref().is_some_and(|given| media.is_named_by(given));
    readable.iter().find(named).copied().ok_or_else(|| {
        unsupported(content_type, &readable.iter().map(|media| media.mime()).collect::<Vec<_>>())
    })
}

/// How a patch says what to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchForm {
    /// A list of operations.
    Json,
    /// An object to lay over the other.
    Merge,
    /// The same, with lists merged by their keys.
    StrategicMerge,
    /// The fields that a manager wants, for the server to merge.
    ApplyYaml,
    ApplyCbor,
}

impl PatchForm {
    /// Those that objects of a kind can be patched in. The lists of a custom kind have no known merge keys,
    /// so that a strategic patch means nothing there.
    pub fn known(kind: &Kind) -> &'static [PatchForm] {
        match kind.custom() {
            None => &[PatchForm::Json, PatchForm::Merge, PatchForm::StrategicMerge, PatchForm::ApplyYaml],
            Some(_) => &[PatchForm::Json, PatchForm::Merge, PatchForm::ApplyYaml],
        }
    }

    pub fn mime(self) -> &'static str {
        match self {
            PatchForm::Json => "application/json-patch+json",
            PatchForm::Merge => "application/merge-patch+json",
            PatchForm::StrategicMerge => "application/strategic-merge-patch+json",
            PatchForm::ApplyYaml => "application/apply-patch+yaml",
            PatchForm::ApplyCbor => "application/apply-patch+cbor",
        }
    }
}

/// `known`: the forms that the target can be patched in. A patch without a form has no meaning.
pub fn patch_form(content_type: &str, known: &[PatchForm]) -> Result<PatchForm, Refusal> {
    let given = media_range(content_type);
    let named = |form: &&PatchForm| given.as_ref().is_some_and(|given| is_exactly(given, form.mime()));
    known
        .iter()
        .find(named)
        .copied()
        .ok_or_else(|| unsupported(content_type, &known.iter().map(|form| form.mime()).collect::<Vec<_>>()))
}

impl Media {
    pub fn mime(self) -> &'static str {
        match self {
            Media::Json => "application/json",
            Media::Yaml => "application/yaml",
            Media::Protobuf => "application/vnd.kubernetes.protobuf",
            Media::Cbor => "application/cbor",
            Media::OpenApiV2Protobuf => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
            Media::OpenApiV3Protobuf => "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
        }
    }

    /// Clients ask for the documents with an at sign, which has no place in an answer's media type.
    fn asked_as(self) -> Option<&'static str> {
        match self {
            Media::OpenApiV2Protobuf => Some("application/com.github.proto-openapi.spec.v2@v1.0+protobuf"),
            Media::OpenApiV3Protobuf => Some("application/com.github.proto-openapi.spec.v3@v1.0+protobuf"),
            Media::Json | Media::Yaml | Media::Protobuf | Media::Cbor => None,
        }
    }

    fn is_wanted_by(self, clause: &MediaRange) -> bool {
        clause.covers(self.mime()) || self.asked_as().is_some_and(|asked| clause.covers(asked))
    }

    fn is_named_by(self, given: &MediaRange) -> bool {
        is_exactly(given, self.mime())
    }
}

impl Offer<'_> {
    fn form_for(&self, clause: &MediaRange) -> Option<Form> {
        if !matches!(clause.param("stream"), None | Some("" | "watch")) {
            return None;
        }
        let shape = shape(clause)?;
        let media = self.media_for(shape).iter().copied();
        let media =
            media.filter(|media| self.can_give(*media, shape)).find(|media| media.is_wanted_by(clause))?;
        Some(Form { answer: self.answer, media, shape, pretty: clause.param("pretty") == Some("1") })
    }

    fn media_for(&self, shape: Shape) -> &[Media] {
        match shape {
            Shape::PartialMetadata(_) | Shape::PartialMetadataList(_) => self.metadata,
            Shape::Whole | Shape::Table(_) | Shape::AggregatedDiscovery(_) => self.whole,
        }
    }

    fn can_give(&self, media: Media, shape: Shape) -> bool {
        // Documents of YAML have no end that a reader of a stream could see.
        if self.answer == Answer::Watch && media == Media::Yaml {
            return false;
        }
        // The tables have no other version of it.
        let is_beta = matches!(
            shape,
            Shape::PartialMetadata(MetaVersion::V1Beta1) | Shape::PartialMetadataList(MetaVersion::V1Beta1)
        );
        if is_beta && media == Media::Protobuf {
            return false;
        }
        match (self.answer, shape) {
            (_, Shape::Whole)
            | (Answer::One | Answer::Review | Answer::Watch, Shape::PartialMetadata(_))
            | (Answer::List, Shape::PartialMetadataList(_)) => true,
            (Answer::One | Answer::List | Answer::Watch, Shape::Table(_)) => {
                matches!(media, Media::Json | Media::Yaml)
            }
            (Answer::Discovery, Shape::AggregatedDiscovery(_)) => media == Media::Json,
            (
                _,
                Shape::Table(_)
                | Shape::PartialMetadata(_)
                | Shape::PartialMetadataList(_)
                | Shape::AggregatedDiscovery(_),
            ) => false,
        }
    }

    fn not_acceptable(&self) -> Refusal {
        let given: Vec<&str> = self
            .whole
            .iter()
            .filter(|media| self.can_give(**media, Shape::Whole))
            .map(|media| media.mime())
            .collect();
        let message = format!("the answer can only be given as: {}", given.join(", "));
        Refusal::new(Reason::NotAcceptable, message)
    }
}

impl Form {
    /// How all groups are to be told of at once, if they are.
    pub fn aggregated(&self) -> Option<DiscoveryVersion> {
        match self.shape {
            Shape::AggregatedDiscovery(version) => Some(version),
            Shape::Whole | Shape::Table(_) | Shape::PartialMetadata(_) | Shape::PartialMetadataList(_) => {
                None
            }
        }
    }

    /// The header of the answer. Only discovery's says its shape, for only there do clients look.
    pub fn content_type(&self) -> &'static str {
        match (self.answer, self.media, self.shape) {
            (_, _, Shape::AggregatedDiscovery(DiscoveryVersion::V2)) => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            (_, _, Shape::AggregatedDiscovery(DiscoveryVersion::V2Beta1)) => {
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            (Answer::Watch, Media::Protobuf, _) => "application/vnd.kubernetes.protobuf;stream=watch",
            (Answer::Watch, Media::Cbor, _) => "application/cbor-seq",
            (_, media, _) => media.mime(),
        }
    }

    /// Whether to indent. `asked`: what the query and the program that asks say. A watch is one line to
    /// an event, whoever reads it.
    pub fn indents(&self, asked: bool) -> bool {
        self.answer != Answer::Watch && self.media == Media::Json && (asked || self.pretty)
    }
}

/// None if the clause asks for one that there is not.
fn shape(clause: &MediaRange) -> Option<Shape> {
    let (kind, group, version) = (clause.param("as"), clause.param("g"), clause.param("v"));
    if (kind, group, version) == (None, None, None) {
        return Some(Shape::Whole);
    }
    if (kind?, group?) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io") {
        return match version? {
            "v2" => Some(Shape::AggregatedDiscovery(DiscoveryVersion::V2)),
            "v2beta1" => Some(Shape::AggregatedDiscovery(DiscoveryVersion::V2Beta1)),
            _ => None,
        };
    }
    if group? != "meta.k8s.io" {
        return None;
    }
    let version = MetaVersion::parse(version?)?;
    match kind? {
        "Table" => Some(Shape::Table(version)),
        "PartialObjectMetadata" => Some(Shape::PartialMetadata(version)),
        "PartialObjectMetadataList" => Some(Shape::PartialMetadataList(version)),
        _ => None,
    }
}

fn is_exactly(given: &MediaRange, mime: &str) -> bool {
    mime.split_once('/') == Some((given.kind.as_str(), given.subtype.as_str()))
}

fn unsupported(content_type: &str, known: &[&str]) -> Refusal {
    let message = format!(
        "the body has the unknown form {:?}; known here: {}",
        excerpt(content_type),
        known.join(", ")
    );
    Refusal::new(Reason::UnsupportedMediaType, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Origin, Registry};
    use rand::rngs::StdRng;
    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng};

    const BUILT_IN: &[Media] = &[Media::Json, Media::Yaml, Media::Protobuf, Media::Cbor];
    const CUSTOM: &[Media] = &[Media::Json, Media::Yaml];
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

    fn built_in(answer: Answer) -> Offer<'static> {
        Offer { answer, whole: BUILT_IN, metadata: BUILT_IN }
    }

    /// Objects of a kind that only JSON is known for; metadata is metadata.
    fn custom(answer: Answer) -> Offer<'static> {
        Offer { answer, whole: CUSTOM, metadata: BUILT_IN }
    }

    fn shown(accept: &str, offer: Offer<'_>) -> String {
        match negotiate(accept, &offer) {
            Ok(form) => format!("{:?} {:?}", form.media, form.shape),
            Err(refusal) => refusal.code().to_string(),
        }
    }

    fn check(accept: &str, offer: Offer<'_>, expected: &str) {
        assert_eq!(shown(accept, offer), expected, "{accept} of {:?}", offer.answer);
    }

    #[test]
    fn who_does_not_care_gets_json() {
        for answer in
            [Answer::Plain, Answer::One, Answer::Review, Answer::List, Answer::Watch, Answer::Discovery]
        {
            for accept in [
                "",
                " ",
                "*/*",
                "application/*",
                "application/json",
                "application/json;stream=watch",
                "application/json;charset=utf-8",
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            ] {
                check(accept, built_in(answer), "Json Whole");
            }
        }
    }

    #[test]
    fn what_kubectl_get_asks_for() {
        let accept = format!("{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json");
        check(&accept, custom(Answer::List), "Json Table(V1)");
        check(&accept, custom(Answer::One), "Json Table(V1)");
        check(&accept, custom(Answer::Watch), "Json Table(V1)");
        check(&accept, custom(Answer::Plain), "Json Whole");
        check(&accept, built_in(Answer::Review), "Json Whole");
        check(TABLE, built_in(Answer::Review), "406");
        check(
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
            custom(Answer::List),
            "Json Table(V1Beta1)",
        );
        check("application/json;as=Table;v=v2;g=meta.k8s.io,*/*", custom(Answer::List), "Json Whole");
        check("application/json;as=Table;v=v2;g=meta.k8s.io", custom(Answer::List), "406");
        check("application/json;as=Table;g=meta.k8s.io", custom(Answer::List), "406");
        check("application/json;as=Chair;v=v1;g=meta.k8s.io", custom(Answer::List), "406");
    }

    #[test]
    fn protobuf_is_for_kinds_that_have_it_and_for_metadata() {
        let accept = format!("{PROTOBUF},application/json");
        check(&accept, built_in(Answer::List), "Protobuf Whole");
        check(&accept, custom(Answer::List), "Json Whole");
        check(PROTOBUF, custom(Answer::One), "406");
        let metadata = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        check(&metadata, custom(Answer::Watch), "Protobuf PartialMetadata(V1)");
        let beta = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1";
        check(&format!("{PROTOBUF};{beta}"), built_in(Answer::Watch), "406");
        let either = format!("{PROTOBUF};{beta},application/json;{beta}");
        check(&either, built_in(Answer::Watch), "Json PartialMetadata(V1Beta1)");
        check(
            &either.replace("Metadata;", "MetadataList;"),
            custom(Answer::List),
            "Json PartialMetadataList(V1Beta1)",
        );
        check(
            &format!("{PROTOBUF};as=Table;g=meta.k8s.io;v=v1,{TABLE}"),
            built_in(Answer::List),
            "Json Table(V1)",
        );
    }

    #[test]
    fn metadata_of_one_and_of_many_are_different_forms() {
        let one = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
        let many = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
        check(one, custom(Answer::One), "Json PartialMetadata(V1)");
        check(one, custom(Answer::Watch), "Json PartialMetadata(V1)");
        check(one, custom(Answer::List), "406");
        check(many, custom(Answer::List), "Json PartialMetadataList(V1)");
        check(many, custom(Answer::One), "406");
        check(many, custom(Answer::Watch), "406");
    }

    #[test]
    fn discovery_is_aggregated_for_those_who_ask() {
        let (v2, beta) = (
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        );
        check(
            &format!("{v2},{beta},application/json"),
            custom(Answer::Discovery),
            "Json AggregatedDiscovery(V2)",
        );
        check(beta, custom(Answer::Discovery), "Json AggregatedDiscovery(V2Beta1)");
        check(&format!("{v2},application/json"), custom(Answer::Plain), "Json Whole");
        for asked in [v2, beta] {
            let form = negotiate(asked, &custom(Answer::Discovery)).expect("acceptable");
            assert_eq!(form.content_type(), asked);
        }
    }

    #[test]
    fn a_stream_has_no_yaml_and_no_other_schema() {
        check("application/yaml", custom(Answer::List), "Yaml Whole");
        check("application/yaml", custom(Answer::Watch), "406");
        check("application/yaml,application/json", custom(Answer::Watch), "Json Whole");
        check("application/json;stream=other", custom(Answer::Watch), "406");
        check(&format!("{PROTOBUF};stream=watch"), built_in(Answer::Watch), "Protobuf Whole");
    }

    #[test]
    fn quality_is_heeded() {
        check(&format!("{PROTOBUF};q=0.5,application/json"), built_in(Answer::One), "Json Whole");
        check(&format!("{PROTOBUF};q=0"), built_in(Answer::One), "406");
        check("text/plain", built_in(Answer::One), "406");
        check("nonsense", built_in(Answer::One), "406");
    }

    #[test]
    fn an_openapi_document_is_asked_for_in_its_own_way() {
        let offer =
            Offer { answer: Answer::Plain, whole: &[Media::Json, Media::OpenApiV2Protobuf], metadata: &[] };
        let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
        check(accept, offer, "OpenApiV2Protobuf Whole");
        check("application/com.github.proto-openapi.spec.v3@v1.0+protobuf", offer, "406");
        check("*/*", offer, "Json Whole");
    }

    #[test]
    fn the_answer_says_what_it_is() {
        for (accept, answer, expected) in [
            ("", Answer::Watch, "application/json"),
            (TABLE, Answer::List, "application/json"),
            (PROTOBUF, Answer::List, PROTOBUF),
            (PROTOBUF, Answer::Watch, "application/vnd.kubernetes.protobuf;stream=watch"),
            ("application/cbor", Answer::One, "application/cbor"),
            ("application/cbor", Answer::Watch, "application/cbor-seq"),
            ("application/yaml", Answer::One, "application/yaml"),
        ] {
            let form = negotiate(accept, &built_in(answer)).expect("acceptable");
            assert_eq!(form.content_type(), expected, "{accept} of {answer:?}");
        }
    }

    #[test]
    fn a_stream_is_never_indented() {
        let form = |accept: &str, answer| negotiate(accept, &built_in(answer)).expect("acceptable");
        assert!(form("", Answer::List).indents(true) && !form("", Answer::List).indents(false));
        assert!(form("application/json;pretty=1", Answer::One).indents(false));
        assert!(!form("application/json;pretty=1", Answer::Watch).indents(true));
        assert!(!form(PROTOBUF, Answer::One).indents(true));
    }

    #[test]
    fn a_body_is_read_in_the_form_it_says_it_has() {
        let read = |content_type: &str| body_media(content_type, BUILT_IN).map_err(|refusal| refusal.code());
        assert_eq!(read(""), Ok(Media::Json));
        assert_eq!(read("application/json; charset=utf-8"), Ok(Media::Json));
        assert_eq!(read("Application/YAML"), Ok(Media::Yaml));
        assert_eq!(read(PROTOBUF), Ok(Media::Protobuf));
        assert_eq!(read("application/cbor"), Ok(Media::Cbor));
        for content_type in
            ["text/plain", "*/*", "application/*", "json", "application/x-www-form-urlencoded"]
        {
            assert_eq!(read(content_type), Err(415), "{content_type}");
        }
        assert_eq!(body_media(PROTOBUF, CUSTOM).map_err(|refusal| refusal.code()), Err(415));
    }

    #[test]
    fn a_patch_says_which_it_is() {
        let all = [
            PatchForm::Json,
            PatchForm::Merge,
            PatchForm::StrategicMerge,
            PatchForm::ApplyYaml,
            PatchForm::ApplyCbor,
        ];
        for form in all {
            assert_eq!(patch_form(form.mime(), &all), Ok(form));
            assert_eq!(patch_form(&format!("{}; charset=utf-8", form.mime()), &all), Ok(form));
        }
        let registry = Registry::built_in();
        let kind = registry.by_resource("", "v1", "pods").expect("built in");
        let built_in = PatchForm::known(kind);
        assert_eq!(
            patch_form("Application/Strategic-Merge-Patch+json", built_in),
            Ok(PatchForm::StrategicMerge)
        );
        let mut kind = (**kind).clone();
        kind.origin = Origin::Custom { definition: "x".to_owned(), schema: None, terminating: false };
        let custom = PatchForm::known(&kind);
        for content_type in ["", "application/json", "*/*", "application/strategic-merge-patch+json"] {
            assert_eq!(patch_form(content_type, custom).expect_err(content_type).code(), 415);
        }
        assert_eq!(patch_form("application/apply-patch+yaml", custom), Ok(PatchForm::ApplyYaml));
    }

    #[test]
    fn noise_in_front_never_hides_what_is_acceptable() {
        let mut rng = StdRng::seed_from_u64(12);
        let alphabet = [
            "application",
            "/",
            "json",
            "*",
            ";",
            "q=0.1",
            "as=Table",
            "g=meta.k8s.io",
            "v=v1",
            "\"\"",
            " ",
            "é",
            "=",
            ",",
        ];
        for _ in 0..5_000 {
            let noise: String = (0..rng.random_range(0..10))
                .map(|_| *alphabet.choose(&mut rng).expect("not empty"))
                .collect();
            let form = negotiate(&format!("{noise},application/json"), &custom(Answer::List));
            assert!(form.is_ok(), "{noise}");
        }
    }
}
