//! What becomes of each value of kthena's chart.

/// What becomes of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// It stands here in ours, a mapping with all that is in it.
    Becomes(&'static str),
    /// It is left out, and whoever migrates should know.
    Note(&'static str),
    /// Where it is true it asks for something that is not available.
    Unavailable(&'static str),
    /// It is left out, and nothing is lost.
    Nothing,
}

use Fate::{Becomes, Note, Nothing, Unavailable};

const IMAGE: &str =
    "the image is another; set router.image.repository and router.image.tag to where yours is";

/// By the path in the values of kthena's umbrella chart. A mapping without a row is entered.
pub(super) const RULES: &[(&str, Fate)] = &[
    ("global.certManagementMode", Becomes("global.certManagementMode")),
    ("global.webhook.caBundle", Becomes("global.webhook.caBundle")),
    (
        "workload",
        Note("kthena's workload controller stays kthena's: keep its chart with networking.enabled=false"),
    ),
    ("networking.enabled", Becomes("router.enabled")),
    (
        "networking.kthenaRouter.enabled",
        Note("kthena's chart installs its router all the same; networking.enabled decides about ours"),
    ),
    ("networking.kthenaRouter.replicas", Becomes("router.replicas")),
    ("networking.kthenaRouter.port", Becomes("router.port")),
    ("networking.kthenaRouter.debugPort", Becomes("router.debugPort")),
    ("networking.kthenaRouter.metrics.port", Becomes("router.metrics.port")),
    ("networking.kthenaRouter.metrics.exposeOnRouterPort", Becomes("router.metrics.exposeOnRouterPort")),
    ("networking.kthenaRouter.service.type", Becomes("router.service.type")),
    ("networking.kthenaRouter.image.repository", Note(IMAGE)),
    ("networking.kthenaRouter.image.tag", Nothing),
    ("networking.kthenaRouter.image.pullPolicy", Becomes("router.image.pullPolicy")),
    ("networking.kthenaRouter.resource", Becomes("router.resource")),
    ("networking.kthenaRouter.accessLog.enabled", Becomes("router.accessLog.enabled")),
    ("networking.kthenaRouter.accessLog.format", Becomes("router.accessLog.format")),
    ("networking.kthenaRouter.accessLog.output", Becomes("router.accessLog.output")),
    ("networking.kthenaRouter.tls.enabled", Unavailable("serving with TLS; end TLS in front of the router")),
    ("networking.kthenaRouter.tls.dnsName", Nothing),
    ("networking.kthenaRouter.tls.secretName", Nothing),
    ("networking.kthenaRouter.webhook.enabled", Becomes("router.webhook.enabled")),
    ("networking.kthenaRouter.webhook.port", Becomes("router.webhook.port")),
    ("networking.kthenaRouter.webhook.servicePort", Becomes("router.webhook.servicePort")),
    ("networking.kthenaRouter.webhook.tls.certFile", Becomes("router.webhook.tls.certFile")),
    ("networking.kthenaRouter.webhook.tls.keyFile", Becomes("router.webhook.tls.keyFile")),
    ("networking.kthenaRouter.webhook.tls.secretName", Becomes("router.webhook.tls.secretName")),
    (
        "networking.kthenaRouter.webhook.tls.serviceName",
        Note("the Service of the webhook is named after fullnameOverride, with -webhook"),
    ),
    ("networking.kthenaRouter.fairness.enabled", Becomes("router.fairness.enabled")),
    ("networking.kthenaRouter.fairness.windowSize", Becomes("router.fairness.windowSize")),
    ("networking.kthenaRouter.fairness.inputTokenWeight", Becomes("router.fairness.inputTokenWeight")),
    ("networking.kthenaRouter.fairness.outputTokenWeight", Becomes("router.fairness.outputTokenWeight")),
    ("networking.kthenaRouter.fairness.maxConcurrent", Becomes("router.fairness.maxConcurrent")),
    ("networking.kthenaRouter.sessionBoost.enabled", Becomes("router.sessionBoost.enabled")),
    ("networking.kthenaRouter.sessionBoost.header", Becomes("router.sessionBoost.header")),
    ("networking.kthenaRouter.sessionBoost.maxSessions", Becomes("router.sessionBoost.maxSessions")),
    ("networking.kthenaRouter.sessionBoost.inflightPerPod", Becomes("router.sessionBoost.inflightPerPod")),
    ("networking.kthenaRouter.sessionBoost.gracePeriod", Becomes("router.sessionBoost.gracePeriod")),
    ("networking.kthenaRouter.sessionBoost.timeout", Becomes("router.sessionBoost.timeout")),
    ("networking.kthenaRouter.gatewayAPI.enabled", Becomes("router.gatewayAPI.enabled")),
    (
        "networking.kthenaRouter.gatewayAPI.inferenceExtension",
        Becomes("router.gatewayAPI.inferenceExtension"),
    ),
    ("networking.kthenaRouter.inferenceExtension", Becomes("router.gatewayAPI.inferenceExtension")),
    ("networking.kthenaRouter.kubeAPIQPS", Becomes("router.kubeAPIQPS")),
    ("networking.kthenaRouter.kubeAPIBurst", Becomes("router.kubeAPIBurst")),
    (
        "networking.kthenaRouter.terminationGracePeriodSeconds",
        Becomes("router.terminationGracePeriodSeconds"),
    ),
    ("networking.kthenaRouter.drainTimeout", Becomes("router.drainTimeout")),
    ("networking.kthenaRouter.tokenizerService.enabled", Becomes("tokenizerService.enabled")),
    ("networking.kthenaRouter.tokenizerService.mode", Becomes("tokenizerService.mode")),
    ("networking.kthenaRouter.tokenizerService.port", Becomes("tokenizerService.port")),
    (
        "networking.kthenaRouter.tokenizerService.image",
        Note(
            "the service runs from router.image; models that need `vllm launch render` need an image with vLLM",
        ),
    ),
    ("networking.kthenaRouter.tokenizerService.maxTokenizers", Becomes("tokenizerService.maxTokenizers")),
    ("networking.kthenaRouter.tokenizerService.models", Becomes("tokenizerService.models")),
    ("networking.kthenaRouter.tokenizerService.extraEnv", Becomes("tokenizerService.extraEnv")),
    ("networking.kthenaRouter.tokenizerService.resources", Becomes("tokenizerService.resources")),
    (
        "networking.kthenaRouter.tokenizerService.standalone.replicas",
        Becomes("tokenizerService.standalone.replicas"),
    ),
];
