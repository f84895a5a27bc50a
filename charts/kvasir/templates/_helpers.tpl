{{- define "kvasir.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* Prefix of object names. */}}
{{- define "kvasir.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "kvasir.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kvasir.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "kvasir.selector" . }}
{{- end -}}

{{- define "kvasir.selector" -}}
app.kubernetes.io/name: {{ include "kvasir.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kvasir.image" -}}
{{ .Values.router.image.repository }}:{{ .Values.router.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "kvasir.tokenizerImage" -}}
{{- $own := .Values.tokenizerService.image -}}
{{ $own.repository | default .Values.router.image.repository }}:{{ $own.tag | default (.Values.router.image.tag | default .Chart.AppVersion) }}
{{- end -}}

{{/* A process that needs nothing. */}}
{{- define "kvasir.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "kvasir.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "kvasir.redisURL" -}}
{{- if .Values.redis.url -}}
{{ .Values.redis.url }}
{{- else if .Values.redis.bundled.enabled -}}
redis://{{ include "kvasir.fullname" . }}-redis.{{ .Release.Namespace }}.svc:6379
{{- end -}}
{{- end -}}

{{/* The webhook's certificate. Of its own for each release: two that shared one would issue it for their names in turns. */}}
{{- define "kvasir.webhookSecret" -}}
{{ .Values.router.webhook.tls.secretName | default (printf "%s-webhook-certs" (include "kvasir.fullname" .)) }}
{{- end -}}

{{- define "kvasir.webhookConfiguration" -}}
{{ include "kvasir.fullname" . }}-validating-webhook
{{- end -}}

{{/* Not empty where the tokenizer service runs in the router's pods. */}}
{{- define "kvasir.hasSidecar" -}}
{{- if and .Values.tokenizerService.enabled (eq .Values.tokenizerService.mode "sidecar") -}}
yes
{{- end -}}
{{- end -}}

{{/* The one namespace whose models the tokenizer service serves. A sidecar runs under the router's account, and sees no other than the router. */}}
{{- define "kvasir.tokenizerNamespace" -}}
{{- $own := .Values.tokenizerService.watchNamespace -}}
{{- if include "kvasir.hasSidecar" . -}}
{{ $own | default .Values.router.watchNamespace }}
{{- else -}}
{{ $own }}
{{- end -}}
{{- end -}}

{{/* Values that contradict each other. What one value may be is in values.schema.json. */}}
{{- define "kvasir.check" -}}
{{- $router := .Values.router -}}
{{- if and (include "kvasir.hasSidecar" .) (not $router.enabled) -}}
{{- fail "tokenizerService.mode is sidecar and there is no router: set tokenizerService.mode to standalone, or router.enabled to true" -}}
{{- end -}}
{{- if $router.enabled -}}
{{- $opened := list (int $router.service.port) -}}
{{- range $router.service.extraPorts -}}
{{- if has (int .port) $opened -}}
{{- fail (printf "the Service cannot open port %d twice: change router.service.port or router.service.extraPorts" (int .port)) -}}
{{- end -}}
{{- $opened = append $opened (int .port) -}}
{{- end -}}
{{- $listeners := list $router.metrics.port $router.debugPort -}}
{{- if $router.webhook.enabled }}{{ $listeners = append $listeners $router.webhook.port }}{{ end -}}
{{- if include "kvasir.hasSidecar" . }}{{ $listeners = append $listeners .Values.tokenizerService.port }}{{ end -}}
{{- range $router.service.extraPorts }}{{ $listeners = append $listeners .port }}{{ end -}}
{{- $taken := list (int $router.port) -}}
{{- range $listeners -}}
{{- if has (int .) $taken -}}
{{- fail (printf "two listeners of the router's pod have port %d: router.port, router.metrics.port, router.debugPort, router.webhook.port, tokenizerService.port of a sidecar and router.service.extraPorts must differ" (int .)) -}}
{{- end -}}
{{- $taken = append $taken (int .) -}}
{{- end -}}
{{- if and $router.fairness.enabled $router.sessionBoost.enabled -}}
{{- fail "router.fairness.enabled and router.sessionBoost.enabled exclude each other: a request waits in one queue only" -}}
{{- end -}}
{{- if and $router.gatewayAPI.inferenceExtension (not $router.gatewayAPI.enabled) -}}
{{- fail "router.gatewayAPI.inferenceExtension needs router.gatewayAPI.enabled: HTTPRoutes are attached to Gateways" -}}
{{- end -}}
{{- if and (include "kvasir.hasSidecar" .) $router.watchNamespace (ne (include "kvasir.tokenizerNamespace" .) $router.watchNamespace) -}}
{{- fail "tokenizerService.watchNamespace is not router.watchNamespace: a sidecar may only see what the router may; make them equal, or set tokenizerService.mode to standalone" -}}
{{- end -}}
{{- if $router.webhook.enabled -}}
{{- if and (eq .Values.global.certManagementMode "manual") (not .Values.global.webhook.caBundle) -}}
{{- fail "global.certManagementMode is manual: set global.webhook.caBundle to the base64 of the PEM bundle that signed the webhook's certificate" -}}
{{- end -}}
{{- if ne (dir $router.webhook.tls.certFile) (dir $router.webhook.tls.keyFile) -}}
{{- fail "router.webhook.tls.certFile and keyFile are in different directories: both come from one mounted Secret" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The tokenizer service's container, in either mode. */}}
{{- define "kvasir.tokenizerContainer" -}}
- name: tokenizer
  image: {{ include "kvasir.tokenizerImage" . | quote }}
  imagePullPolicy: {{ .Values.router.image.pullPolicy }}
  args: [tokenizer]
  env:
    - {name: TOKENIZER_PORT, value: {{ .Values.tokenizerService.port | quote }}}
    - {name: MODEL_TOKENIZERS, value: {{ .Values.tokenizerService.models | toJson | quote }}}
    - {name: MAX_TOKENIZERS, value: {{ .Values.tokenizerService.maxTokenizers | quote }}}
    - {name: WATCH_NAMESPACE, value: {{ include "kvasir.tokenizerNamespace" . | quote }}}
    - {name: HF_HOME, value: /var/cache/huggingface}
    # What renderers write, and where they look for a user who has no name.
    - {name: HOME, value: /tmp}
    {{- with .Values.tokenizerService.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports: [{name: tokenizer, containerPort: {{ .Values.tokenizerService.port }}}]
  startupProbe: {httpGet: {path: /healthz, port: tokenizer}, periodSeconds: 1, failureThreshold: 60}
  livenessProbe: {httpGet: {path: /healthz, port: tokenizer}, periodSeconds: 5}
  {{- /* A pod is ready when all its containers are. The router does without the service, so it must not wait for it. */}}
  {{- if not (include "kvasir.hasSidecar" .) }}
  readinessProbe: {httpGet: {path: /readyz, port: tokenizer}, periodSeconds: 5}
  {{- end }}
  resources: {{- toYaml .Values.tokenizerService.resources | nindent 4 }}
  securityContext: {{- include "kvasir.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: tokenizer-tmp, mountPath: /tmp}
    - {name: hub, mountPath: /var/cache/huggingface}
    {{- with .Values.tokenizerService.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "kvasir.tokenizerVolumes" -}}
- {name: tokenizer-tmp, emptyDir: {}}
- {name: hub, emptyDir: {}}
{{- with .Values.tokenizerService.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
