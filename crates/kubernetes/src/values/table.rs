//! Which fields of which kinds have which rules.

use super::rule::Rule::{self, *};

type Line = (&'static str, Rule);

/// Rules, and below which field their paths begin.
pub struct Part {
    pub below: &'static str,
    pub rules: &'static [Line],
}

const fn part(below: &'static str, rules: &'static [Line]) -> Part {
    Part { below, rules }
}

/// How a field keeps its value.
#[derive(Clone, Copy, Debug)]
pub enum Hold {
    Equal,
    /// What was said stays; defaults may come.
    AtLeast,
    /// The same, but for where pods run and what they get, while nothing runs of a suspended Job.
    Template,
}

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

const POD: &[Line] = &[
    ("containers", Required),
    ("containers", Unique("name")),
    ("containers[].name", Required),
    ("containers[].name", Label),
    ("containers[].image", Required),
    ("containers[].imagePullPolicy", OneOf(&["Always", "IfNotPresent", "Never"])),
    ("containers[].ports[].containerPort", RequiredPort),
    ("containers[].ports[].hostPort", Port),
    ("containers[].ports[].name", PortName),
    ("containers[].ports[].protocol", OneOf(PROTOCOLS)),
    ("containers[].ports", Unique("name")),
    ("containers[].env[].name", Required),
    ("containers[].env[].name", EnvName),
    ("containers[].resources.limits{}", Quantity),
    ("containers[].resources.requests{}", Quantity),
    ("containers[].livenessProbe.httpGet.port", PortOrName),
    ("containers[].readinessProbe.httpGet.port", PortOrName),
    ("containers[].startupProbe.httpGet.port", PortOrName),
    ("containers[].livenessProbe.tcpSocket.port", PortOrName),
    ("containers[].readinessProbe.tcpSocket.port", PortOrName),
    ("containers[].startupProbe.tcpSocket.port", PortOrName),
    ("containers[].volumeMounts[].name", Required),
    ("containers[].volumeMounts[].mountPath", Required),
    ("initContainers", Unique("name")),
    ("initContainers[].name", Required),
    ("initContainers[].name", Label),
    ("initContainers[].image", Required),
    ("initContainers[].ports[].containerPort", RequiredPort),
    ("initContainers[].env[].name", Required),
    ("initContainers[].resources.limits{}", Quantity),
    ("initContainers[].resources.requests{}", Quantity),
    ("volumes", Unique("name")),
    ("volumes[].name", Required),
    ("volumes[].name", Label),
    ("restartPolicy", OneOf(&["Always", "OnFailure", "Never"])),
    ("dnsPolicy", OneOf(&["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"])),
    ("activeDeadlineSeconds", Least(1, "must be between 1 and 2147483647, inclusive")),
];

const ALWAYS: Line = ("template.spec.restartPolicy", OneOf(&["Always"]));

const DEPLOYMENT: &[Line] = &[
    ("replicas", NonNegative),
    ("minReadySeconds", NonNegative),
    ("revisionHistoryLimit", NonNegative),
    ("progressDeadlineSeconds", NonNegative),
    ("strategy.type", OneOf(&["Recreate", "RollingUpdate"])),
    ("strategy.rollingUpdate.maxUnavailable", IntOrPercent),
    ("strategy.rollingUpdate.maxSurge", IntOrPercent),
    ALWAYS,
];

const REPLICAS: &[Line] = &[("replicas", NonNegative), ("minReadySeconds", NonNegative), ALWAYS];

const STATEFUL_SET: &[Line] = &[
    ("replicas", NonNegative),
    ("minReadySeconds", NonNegative),
    ("revisionHistoryLimit", NonNegative),
    ("ordinals.start", NonNegative),
    ("podManagementPolicy", OneOf(&["OrderedReady", "Parallel"])),
    ("updateStrategy.type", OneOf(&["RollingUpdate", "OnDelete"])),
    ("updateStrategy.rollingUpdate.partition", NonNegative),
    ALWAYS,
];

const DAEMON_SET: &[Line] = &[
    ("minReadySeconds", NonNegative),
    ("revisionHistoryLimit", NonNegative),
    ("updateStrategy.type", OneOf(&["RollingUpdate", "OnDelete"])),
    ("updateStrategy.rollingUpdate.maxUnavailable", IntOrPercent),
    ("updateStrategy.rollingUpdate.maxSurge", IntOrPercent),
    ALWAYS,
];

const JOB: &[Line] = &[
    ("parallelism", NonNegative),
    ("completions", NonNegative),
    ("activeDeadlineSeconds", NonNegative),
    ("backoffLimit", NonNegative),
    ("ttlSecondsAfterFinished", NonNegative),
    ("backoffLimitPerIndex", NonNegative),
    ("maxFailedIndexes", NonNegative),
    ("completionMode", OneOf(&["NonIndexed", "Indexed"])),
    ("template.spec.restartPolicy", JobRestart),
];

const CRON_JOB: &[Line] = &[
    ("schedule", Schedule),
    ("startingDeadlineSeconds", NonNegative),
    ("successfulJobsHistoryLimit", NonNegative),
    ("failedJobsHistoryLimit", NonNegative),
    ("concurrencyPolicy", OneOf(&["Allow", "Forbid", "Replace"])),
];

const SERVICE: &[Line] = &[
    ("type", OneOf(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"])),
    ("sessionAffinity", OneOf(&["ClientIP", "None"])),
    ("externalTrafficPolicy", OneOf(&["Cluster", "Local"])),
    ("internalTrafficPolicy", OneOf(&["Cluster", "Local"])),
    ("ports", Unique("name")),
    ("ports[].name", Label),
    ("ports[].port", ServicePort),
    ("ports[].targetPort", PortOrName),
    ("ports[].nodePort", Port),
    ("ports[].protocol", OneOf(PROTOCOLS)),
];

const CLAIM: &[Line] = &[
    ("accessModes", RequiredAs("at least 1 access mode is required")),
    ("accessModes[]", OneOf(&["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"])),
    ("resources.requests.storage", Required),
    ("resources.requests{}", Quantity),
    ("resources.limits{}", Quantity),
    ("volumeMode", OneOf(&["Block", "Filesystem"])),
];

const VOLUME: &[Line] = &[
    ("capacity.storage", Required),
    ("capacity{}", Quantity),
    ("accessModes", Required),
    ("persistentVolumeReclaimPolicy", OneOf(&["Delete", "Recycle", "Retain"])),
];

const SCALER: &[Line] = &[
    ("minReplicas", Least(1, "must be greater than or equal to 1")),
    ("maxReplicas", Least(1, "must be greater than 0")),
    ("scaleTargetRef.kind", Required),
    ("scaleTargetRef.name", Required),
];

const LEASE: &[Line] =
    &[("leaseDurationSeconds", Least(1, "must be greater than 0")), ("leaseTransitions", NonNegative)];

const SLICE: &[Line] = &[
    ("addressType", Required),
    ("addressType", OneOf(&["FQDN", "IPv4", "IPv6"])),
    ("ports[].port", Port),
    ("ports[].protocol", OneOf(PROTOCOLS)),
    ("ports", Unique("name")),
    ("endpoints[].addresses", Required),
];

const ENDPOINTS: &[Line] = &[
    ("subsets[].addresses[].ip", Required),
    ("subsets[].ports[].port", ServicePort),
    ("subsets[].ports[].protocol", OneOf(PROTOCOLS)),
];

const BUDGET: &[Line] = &[("minAvailable", IntOrPercent), ("maxUnavailable", IntOrPercent)];

const INGRESS: &[Line] = &[
    ("rules[].http?.paths", Required),
    ("rules[].http.paths[].pathType", Required),
    ("rules[].http.paths[].pathType", OneOf(&["Exact", "ImplementationSpecific", "Prefix"])),
    ("rules[].http.paths[].backend.service.port.number", Port),
    ("rules[].host", Host),
];

const POLICY: &[Line] = &[
    ("policyTypes[]", OneOf(&["Egress", "Ingress"])),
    ("ingress[].ports[].port", PortOrName),
    ("egress[].ports[].port", PortOrName),
    ("ingress[].ports[].protocol", OneOf(PROTOCOLS)),
    ("egress[].ports[].protocol", OneOf(PROTOCOLS)),
];

const ROLE: &[Line] = &[("rules[].verbs", RequiredAs("verbs must contain at least one value"))];

const BINDING: &[Line] = &[
    ("roleRef.name", Required),
    ("roleRef.kind", Required),
    ("subjects[].name", Required),
    ("subjects[].kind", OneOf(&["Group", "ServiceAccount", "User"])),
];

const CLASS: &[Line] = &[
    ("provisioner", Required),
    ("reclaimPolicy", OneOf(&["Delete", "Retain"])),
    ("volumeBindingMode", OneOf(&["Immediate", "WaitForFirstConsumer"])),
];

pub fn of(group: &str, kind: &str) -> &'static [Part] {
    const TEMPLATE: &str = "spec.template.spec.";
    match (group, kind) {
        ("", "Pod") => const { &[part("spec.", POD)] },
        ("", "PodTemplate") => const { &[part("template.spec.", POD)] },
        ("", "ReplicationController") => const { &[part("spec.", REPLICAS), part(TEMPLATE, POD)] },
        ("apps", "Deployment") => const { &[part("spec.", DEPLOYMENT), part(TEMPLATE, POD)] },
        ("apps", "ReplicaSet") => const { &[part("spec.", REPLICAS), part(TEMPLATE, POD)] },
        ("apps", "StatefulSet") => const { &[part("spec.", STATEFUL_SET), part(TEMPLATE, POD)] },
        ("apps", "DaemonSet") => const { &[part("spec.", DAEMON_SET), part(TEMPLATE, POD)] },
        ("batch", "Job") => const { &[part("spec.", JOB), part(TEMPLATE, POD)] },
        ("batch", "CronJob") => {
            const {
                &[
                    part("spec.", CRON_JOB),
                    part("spec.jobTemplate.spec.", JOB),
                    part("spec.jobTemplate.spec.template.spec.", POD),
                ]
            }
        }
        ("", "Service") => const { &[part("spec.", SERVICE)] },
        ("", "Endpoints") => const { &[part("", ENDPOINTS)] },
        ("discovery.k8s.io", "EndpointSlice") => const { &[part("", SLICE)] },
        ("", "PersistentVolumeClaim") => const { &[part("spec.", CLAIM)] },
        ("", "PersistentVolume") => const { &[part("spec.", VOLUME)] },
        ("", "ResourceQuota") => const { &[part("", &[("spec.hard{}", Quantity)])] },
        ("", "Node") => {
            const { &[part("status.", &[("capacity{}", Quantity), ("allocatable{}", Quantity)])] }
        }
        ("autoscaling", "HorizontalPodAutoscaler") => const { &[part("spec.", SCALER)] },
        ("coordination.k8s.io", "Lease") => const { &[part("spec.", LEASE)] },
        ("policy", "PodDisruptionBudget") => const { &[part("spec.", BUDGET)] },
        ("networking.k8s.io", "Ingress") => const { &[part("spec.", INGRESS)] },
        ("networking.k8s.io", "NetworkPolicy") => const { &[part("spec.", POLICY)] },
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => const { &[part("", ROLE)] },
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => const { &[part("", BINDING)] },
        ("storage.k8s.io", "StorageClass") => const { &[part("", CLASS)] },
        _ => &[],
    }
}

/// What cannot change once it has a value.
pub fn fixed(group: &str, kind: &str) -> &'static [(&'static str, Hold)] {
    use Hold::{AtLeast, Equal, Template};
    match (group, kind) {
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => &[("spec.selector", Equal)],
        ("apps", "StatefulSet") => &[
            ("spec.selector", Equal),
            ("spec.serviceName", Equal),
            ("spec.podManagementPolicy", Equal),
            ("spec.volumeClaimTemplates", AtLeast),
        ],
        ("batch", "Job") => &[
            ("spec.selector", Equal),
            ("spec.template", Template),
            ("spec.completionMode", Equal),
            ("spec.backoffLimitPerIndex", Equal),
            ("spec.managedBy", Equal),
        ],
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &[("roleRef", AtLeast)],
        ("scheduling.k8s.io", "PriorityClass") => &[("value", Equal), ("preemptionPolicy", Equal)],
        ("storage.k8s.io", "StorageClass") => &[
            ("provisioner", Equal),
            ("parameters", Equal),
            ("reclaimPolicy", Equal),
            ("volumeBindingMode", Equal),
        ],
        ("networking.k8s.io", "IngressClass") => &[("spec.controller", Equal)],
        ("node.k8s.io", "RuntimeClass") => &[("handler", Equal)],
        ("discovery.k8s.io", "EndpointSlice") => &[("addressType", Equal)],
        _ => &[],
    }
}
