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

{{- define "kvasir.webhookConfiguration" -}}
{{ include "kvasir.fullname" . }}-validating-webhook
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
    - {name: WATCH_NAMESPACE, value: {{ .Values.tokenizerService.watchNamespace | quote }}}
    - {name: HF_HOME, value: /var/cache/huggingface}
    {{- with .Values.tokenizerService.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports: [{name: tokenizer, containerPort: {{ .Values.tokenizerService.port }}}]
  livenessProbe: {httpGet: {path: /healthz, port: tokenizer}, periodSeconds: 5}
  readinessProbe: {httpGet: {path: /readyz, port: tokenizer}, periodSeconds: 5}
  resources: {{- toYaml .Values.tokenizerService.resources | nindent 4 }}
  securityContext: {{- include "kvasir.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: hub, mountPath: /var/cache/huggingface}
    {{- with .Values.tokenizerService.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "kvasir.tokenizerVolumes" -}}
- {name: hub, emptyDir: {}}
{{- with .Values.tokenizerService.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
