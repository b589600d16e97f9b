{{/* The name of all objects: the name of the release, or sluice-RELEASE. */}}
{{- define "sluice.name" -}}
{{- if contains "sluice" .Release.Name -}}
{{ .Release.Name | trunc 54 | trimSuffix "-" }}
{{- else -}}
{{ printf "sluice-%s" .Release.Name | trunc 54 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{/* The labels by which pods are selected. Rules and dashboards rely on the first. */}}
{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "sluice.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (ternary (printf "%s-cuda" .Chart.AppVersion) .Chart.AppVersion (gt (int .Values.gpus) 0)) }}
{{- end -}}

{{/* The options as a file. */}}
{{- define "sluice.config" -}}
{{ toYaml .Values.config }}
{{- end -}}

{{/* A probe of the service given as .service. With TLS probes use a plain address of their own. */}}
{{- define "sluice.probe" -}}
grpc:
  port: {{ ternary 8004 8001 (ne .root.Values.tls.secretName "") }}
  service: sluice.{{ .service }}
{{- end -}}
