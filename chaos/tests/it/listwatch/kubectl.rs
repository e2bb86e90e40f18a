//! kubectl: what people type, on a cluster of three.

use std::path::Path;
use std::time::Duration;

use meerkat_chaos::binary::long_forms_wanted;
use meerkat_chaos::listwatch::kubectl::{Kubectl, programs};
use meerkat_chaos::listwatch::{kubeconfig, start};
use meerkat_chaos::metrics::Metrics;
use meerkat_chaos::scenario::run_test;
use meerkat_chaos::{Failure, Patience};

const WITHIN: Duration = Duration::from_secs(15);
/// How long a kubectl may take until it watches.
const WATCHES_WITHIN: Duration = Duration::from_secs(20);

const DEFINITION: &str = r#"{
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
  "metadata": { "name": "crontabs.stable.example.com" },
  "spec": {
    "group": "stable.example.com", "scope": "Namespaced",
    "names": { "plural": "crontabs", "singular": "crontab", "kind": "CronTab", "shortNames": ["ct"] },
    "versions": [{
      "name": "v1", "served": true, "storage": true,
      "subresources": { "status": {}, "scale": {
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" } },
      "selectableFields": [{ "jsonPath": ".spec.image" }],
      "additionalPrinterColumns": [
        { "name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec" },
        { "name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas" }
      ],
      "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": {
        "type": "object", "required": ["cronSpec"], "description": "When to run what.",
        "properties": {
          "cronSpec": { "type": "string", "pattern": "^\\S+( \\S+){4}$", "description": "Five fields." },
          "image": { "type": "string" },
          "replicas": { "type": "integer", "minimum": 0, "default": 1 }
        } }, "status": { "type": "object", "properties": { "replicas": { "type": "integer" } } } } } }
    }]
  }
}"#;

const CRON_TAB: &str = "
apiVersion: stable.example.com/v1
kind: CronTab
metadata:
  name: nightly
spec:
  cronSpec: '0 3 * * *'
  image: backup
";

const CONFIG: &str = "
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  labels: {app: web}
data:
  color: blue
";

/// One kubectl, in a namespace of its own.
struct Hand {
    kubectl: Kubectl,
    namespace: String,
    /// The door it talks to.
    server: String,
}

impl Hand {
    /// `words` are those of the command, cut at spaces.
    fn does(&self, words: &str, input: &str, expected: &str) -> Result<String, Failure> {
        self.kubectl.expect(&self.args(words), input, expected)
    }

    fn fails(&self, words: &str, input: &str, expected: &str) -> Result<(), Failure> {
        self.kubectl.expect_failure(&self.args(words), input, expected)
    }

    fn args<'a>(&'a self, words: &'a str) -> Vec<&'a str> {
        let mut args: Vec<&str> = words.split(' ').collect();
        args.extend(["--namespace", &self.namespace]);
        args
    }

    /// How many watches are open at its door.
    fn watches(&self) -> Result<f64, Failure> {
        let address = self.server.strip_prefix("http://").unwrap_or(&self.server);
        let reading = async { Metrics::read(address).await?.get("meerkat_listwatch_watches") };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(reading))
    }

    /// Waits until there is one more than there were. Of those, some may be about to end.
    fn until_it_watches(&self, before: f64) -> Result<(), Failure> {
        let (patience, mut fewest) = (Patience::of("a watch is opened", WATCHES_WITHIN), before);
        loop {
            let now = self.watches()?;
            if fewest < now {
                return patience.came().map(drop);
            }
            fewest = fewest.min(now);
            patience.lasts(format_args!("{now} are open"))?;
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Runs `steps` with each kubectl there is.
fn with_each(name: &str, steps: impl Fn(&Hand) -> Result<(), Failure>) {
    run_test(name, Duration::from_secs(240), async {
        let cluster = start(3).await?;
        for (number, program) in programs(long_forms_wanted())?.iter().enumerate() {
            let home = cluster.dir().join(format!("home-{number}"));
            std::fs::create_dir_all(&home)?;
            let server = cluster.members()[number % 3].listwatch_url();
            let kubectl = Kubectl::new(program, &kubeconfig(&server, &home)?, &home);
            println!("{}", version(&kubectl)?);
            let hand = Hand { kubectl, namespace: format!("test-{number}"), server };
            hand.kubectl.expect(&["create", "namespace", &hand.namespace], "", "created")?;
            steps(&hand).map_err(|failure| failure.during(&program_name(program)))?;
            hand.kubectl.expect(&["delete", "namespace", &hand.namespace, "--wait=false"], "", "deleted")?;
        }
        cluster.finish()
    });
}

fn version(kubectl: &Kubectl) -> Result<String, Failure> {
    let text = kubectl.expect(&["version", "--output=json"], "", "serverVersion")?;
    let read: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| Failure::broken(format!("kubectl version: {error}")))?;
    Ok(format!("kubectl {}", read["clientVersion"]["gitVersion"]))
}

fn program_name(program: &Path) -> String {
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[test]
fn config_maps_are_created_read_changed_and_deleted() {
    with_each("kubectl and config maps", |hand| {
        hand.does("create configmap made --from-literal=a=1", "", "configmap/made created")?;
        hand.fails("create configmap made --from-literal=a=1", "", "already exists")?;
        let table = hand.does("get configmaps", "", "NAME")?;
        assert!(table.contains("DATA") && table.contains("made"), "{table}");
        hand.does("get configmap made -o jsonpath={.data.a}", "", "1")?;
        hand.does("get configmap made -o yaml", "", "kind: ConfigMap")?;
        hand.fails("get configmap nobody", "", "NotFound")?;

        hand.does("apply -f -", CONFIG, "configmap/settings created")?;
        hand.does("apply -f -", CONFIG, "configmap/settings unchanged")?;
        hand.does("apply -f -", &CONFIG.replace("blue", "red"), "configmap/settings configured")?;
        hand.does("get configmap settings -o jsonpath={.data.color}", "", "red")?;
        hand.does("diff -f -", &CONFIG.replace("blue", "red"), "")?;
        hand.does("apply -f - --dry-run=server", &CONFIG.replace("blue", "green"), "(server dry run)")?;
        hand.does("get configmap settings -o jsonpath={.data.color}", "", "red")?;

        hand.does("label configmap made app=web", "", "labeled")?;
        let found = hand.does("get configmaps -l app=web -o name", "", "configmap/made")?;
        assert_eq!(found.lines().count(), 2, "{found}");
        hand.does("get configmaps --show-labels", "", "app=web")?;
        hand.does("get configmaps --field-selector metadata.name=made -o name", "", "configmap/made")?;
        hand.does("annotate configmap made note=x", "", "annotated")?;
        hand.does(r#"patch configmap made --type=merge -p {"data":{"b":"2"}}"#, "", "patched")?;
        hand.does(
            r#"patch configmap made --type=json -p [{"op":"remove","path":"/data/a"}]"#,
            "",
            "patched",
        )?;
        hand.does(r#"patch configmap made -p {"data":{"c":"3"}}"#, "", "patched")?;
        hand.does("get configmap made -o jsonpath={.data}", "", r#"{"b":"2","c":"3"}"#)?;
        hand.does("describe configmap made", "", "note")?;
        hand.does("get configmaps -A --chunk-size=1 -o name", "", "configmap/settings")?;

        hand.does("delete configmap made", "", "deleted")?;
        let waiting = ["wait", "--for=delete", "configmap/settings", "--timeout=60s", "-n", &hand.namespace];
        let before = hand.watches()?;
        let waiting = hand.kubectl.follow(&waiting)?;
        // It must have found what it is to wait for.
        hand.until_it_watches(before)?;
        hand.does("delete configmaps -l app=web", "", "deleted")?;
        waiting.line_with("condition met", WITHIN)?;
        let left = hand.does("get configmaps -o name", "", "")?;
        assert!(!left.contains("settings"), "{left}");
        Ok(())
    });
}

#[test]
fn fields_applied_by_two_belong_to_two() {
    with_each("kubectl and server-side apply", |hand| {
        let one = "apply --server-side --field-manager=one -f -";
        let two = "apply --server-side --field-manager=two -f -";
        hand.does(one, CONFIG, "configmap/settings serverside-applied")?;
        hand.fails(two, &CONFIG.replace("blue", "red"), "conflict")?;
        hand.does(&format!("{two} --force-conflicts"), &CONFIG.replace("blue", "red"), "serverside-applied")?;
        hand.does("get configmap settings -o jsonpath={.data.color}", "", "red")?;
        Ok(())
    });
}

/// As `kubectl diff --server-side` asks, whose output is a failure to the shell.
#[test]
fn server_side_apply_follows_client_side_apply_and_back() {
    with_each("kubectl from client-side to server-side apply", |hand| {
        let apply = "apply --server-side -f -";
        hand.does("apply -f -", CONFIG, "configmap/settings created")?;
        hand.does(
            &format!("{apply} --dry-run=server"),
            &CONFIG.replace("blue", "red"),
            "serverside-applied",
        )?;
        hand.does(apply, &CONFIG.replace("blue", "red"), "serverside-applied")?;
        hand.does(apply, &CONFIG.replace("blue", "green"), "serverside-applied")?;
        hand.does("get configmap settings -o jsonpath={.data.color}", "", "green")?;
        hand.does("apply -f -", &CONFIG.replace("  color: blue", "  shape: round"), "configured")?;
        hand.does("get configmap settings -o jsonpath={.data}", "", r#"{"shape":"round"}"#)?;
        Ok(())
    });
}

#[test]
fn a_watch_prints_every_change_as_it_comes() {
    with_each("kubectl get --watch", |hand| {
        let args = ["get", "configmaps", "--watch", "--output-watch-events", "-n", &hand.namespace];
        let watch = hand.kubectl.follow(&args)?;
        hand.does("create configmap seen --from-literal=a=1", "", "created")?;
        watch.line_with("seen", WITHIN).map(|line| assert!(line.starts_with("ADDED"), "{line}"))?;
        hand.does("label configmap seen x=y", "", "labeled")?;
        watch.line_with("seen", WITHIN).map(|line| assert!(line.starts_with("MODIFIED"), "{line}"))?;
        hand.does("delete configmap seen", "", "deleted")?;
        watch.line_with("seen", WITHIN).map(|line| assert!(line.starts_with("DELETED"), "{line}"))
    });
}

#[test]
fn a_definition_makes_a_kind_like_any_other() {
    with_each("kubectl and a custom kind", |hand| {
        hand.does("apply -f -", DEFINITION, "crontabs.stable.example.com")?;
        let established = "wait --for=condition=established --timeout=10s crd/crontabs.stable.example.com";
        hand.does(established, "", "condition met")?;
        hand.does("api-resources --api-group=stable.example.com", "", "crontabs")?;
        hand.does("explain crontab.spec", "", "Five fields")?;
        hand.does("apply -f -", CRON_TAB, "crontab.stable.example.com/nightly created")?;
        let table = hand.does("get ct", "", "SPEC")?;
        assert!(table.contains("REPLICAS") && table.contains("0 3 * * *"), "{table}");
        hand.does("get ct nightly -o jsonpath={.spec.replicas}", "", "1")?;
        hand.fails("apply -f -", &CRON_TAB.replace("'0 3 * * *'", "never"), "spec.cronSpec")?;
        hand.fails("create -f -", &CRON_TAB.replace("image: backup", "image: 5"), "image")?;
        hand.does("scale crontab nightly --replicas=3", "", "scaled")?;
        hand.does("get ct nightly -o jsonpath={.spec.replicas}", "", "3")?;
        hand.does("get ct --field-selector spec.image=backup -o name", "", "nightly")?;
        hand.does("delete crd crontabs.stable.example.com", "", "deleted")?;
        hand.fails("get ct", "", "")
    });
}

#[test]
fn other_kinds_and_pages_answer_too() {
    with_each("kubectl and other kinds", |hand| {
        let kinds = hand.does("api-resources", "", "configmaps")?;
        for kind in ["namespaces", "secrets", "deployments", "customresourcedefinitions", "leases"] {
            assert!(kinds.contains(kind), "{kind} is not in {kinds}");
        }
        hand.does("api-versions", "", "apps/v1")?;
        hand.does("explain configmap.data", "", "data")?;
        hand.does("auth can-i create configmaps", "", "yes")?;
        hand.does("get --raw /version", "", "gitVersion")?;
        hand.does("create secret generic s --from-literal=p=q", "", "created")?;
        hand.does("get secret s -o jsonpath={.data.p}", "", "cQ==")?;
        hand.does("create serviceaccount robot", "", "created")?;
        let web = hand.does("create deployment web --image=nginx --dry-run=client -o json", "", "nginx")?;
        hand.does("apply -f -", &web.replace("\"replicas\": 1", "\"replicas\": 2"), "created")?;
        let table = hand.does("get deployments", "", "READY")?;
        assert!(table.contains("0/2"), "{table}");
        hand.does("scale deployment web --replicas=5", "", "scaled")?;
        hand.does("set image deployment/web nginx=nginx:2", "", "image updated")?;
        hand.does("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}", "", "nginx:2")?;
        let service =
            hand.does("create service clusterip web --tcp=80:80 --dry-run=client -o json", "", "80")?;
        hand.does("create -f -", &service, "created")?;
        hand.does("run one --image=nginx --restart=Never", "", "created")?;
        hand.does("get pods", "", "STATUS")?;
        hand.does("get all", "", "deployment.apps/web")?;
        hand.does("get namespaces", "", "Active")?;
        hand.does("delete pod one --now", "", "deleted")?;
        Ok(())
    });
}

/// What kubectl follows to the end of each kind, as if it were always there.
const MINIMAL: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: m}
spec:
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: m}
spec:
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: m}
spec:
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: m}
spec:
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: m}
value: 5
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: m}
addressType: IPv4
endpoints: [{addresses: [1.2.3.4]}]
ports: [{port: 80}]
";

#[test]
fn minimal_objects_are_described_and_explained() {
    with_each("kubectl describe", |hand| {
        hand.does("create -f -", MINIMAL, "created")?;
        for kind in ["deployment", "rs", "statefulset", "rc", "priorityclass"] {
            hand.does(&format!("describe {kind} m"), "", "m")?;
        }
        hand.does("get rs m", "", "DESIRED")?;
        hand.does("delete priorityclass m", "", "deleted")?;
        hand.does("explain deployment.spec.template.spec.containers.livenessProbe.httpGet.port", "", "port")?;
        let wrong = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: w}\nspec: {replicas: three}";
        hand.fails(
            "create --validate=false -f -",
            wrong,
            "cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        )
    });
}

/// From 1.32 on in protobuf.
#[test]
fn what_kubectl_makes_itself_is_taken_as_it_sends_it() {
    with_each("kubectl create", |hand| {
        hand.does("create deployment direct --image=nginx", "", "created")?;
        hand.does("get deployment direct -o jsonpath={.spec.replicas}", "", "1")?;
        hand.does("get deployment direct -o jsonpath={.spec.selector.matchLabels.app}", "", "direct")?;
        hand.does("create job once --image=busybox", "", "created")?;
        hand.does("get job once -o jsonpath={.spec.template.spec.restartPolicy}", "", "Never")?;
        hand.does("create role reader --verb=get --resource=pods", "", "created")?;
        hand.does("get role reader -o jsonpath={.rules[0].verbs[0]}", "", "get")?;
        hand.does("create rolebinding readers --role=reader --serviceaccount=default:robot", "", "created")?;
        hand.does("get rolebinding readers -o jsonpath={.subjects[0].name}", "", "robot")?;
        hand.does("create quota few --hard=pods=3", "", "created")?;
        hand.does("get quota few -o jsonpath={.spec.hard.pods}", "", "3")?;
        hand.does("create service clusterip direct --tcp=80:8080", "", "created")?;
        hand.does("get service direct -o jsonpath={.spec.ports[0].targetPort}", "", "8080")?;
        Ok(())
    });
}

#[test]
fn a_namespace_goes_with_all_that_is_in_it() {
    with_each("kubectl delete namespace", |hand| {
        hand.kubectl.expect(&["create", "namespace", "doomed"], "", "created")?;
        hand.kubectl.expect(&["create", "configmap", "inside", "-n", "doomed"], "", "created")?;
        hand.kubectl.expect(&["delete", "namespace", "doomed", "--timeout=20s"], "", "deleted")?;
        hand.kubectl.expect_failure(&["get", "namespace", "doomed"], "", "NotFound")?;
        hand.kubectl.expect_failure(&["get", "configmap", "inside", "-n", "doomed"], "", "NotFound")?;
        hand.kubectl.expect_failure(&["create", "configmap", "late", "-n", "doomed"], "", "not found")
    });
}
