{{/*
The name of all objects: fullnameOverride, the name of the release, or sluice-RELEASE. It has at
most 47 characters, so that the longest name, with the suffix -endpoint-picker, has at most 63.
*/}}
{{- define "sluice.name" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains "sluice" .Release.Name -}}
{{ .Release.Name | trunc 47 | trimSuffix "-" }}
{{- else -}}
{{ printf "sluice-%s" .Release.Name | trunc 47 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{/*
The text of a file of the Kustomize tree, for this release. Arguments: the root, and the path below
files/. Pods are selected by the release too, names begin with the release's name, and scrapes come
from the chosen namespace.
*/}}
{{- define "sluice.text" -}}
{{- $root := index . 0 -}}
{{- $path := index . 1 -}}
{{- $text := required (printf "the chart lacks files/%s" $path) ($root.Files.Get (printf "files/%s" $path)) -}}
{{- $name := include "sluice.name" $root -}}
{{- $text = regexReplaceAll "(?m)^( *)app[.]kubernetes[.]io/name: (sluice[a-z-]*)$" $text (printf "${1}app.kubernetes.io/name: ${2}\n${1}app.kubernetes.io/instance: %s" $root.Release.Name) -}}
{{- $text = regexReplaceAll "(?m)^( *(?:- )?(?:name|serviceAccountName): *)sluice(-[a-z-]+)?$" $text (printf "${1}%s${2}" $name) -}}
{{- $text = replace "--pool-name=sluice" (printf "--pool-name=%s" $name) $text -}}
{{- $text = replace "sluice-headless" (printf "%s-headless" $name) $text -}}
{{- with ($root.Values.prometheusRule).runbooks -}}
{{- $text = regexReplaceAll "(?m)^( *)runbook: (.*)$" $text (printf "${1}runbook: ${2}\n${1}runbook_url: %s#${2}" .) -}}
{{- end -}}
{{- replace "kubernetes.io/metadata.name: monitoring" (printf "kubernetes.io/metadata.name: %s" $root.Values.monitoringNamespace) $text -}}
{{- end -}}

{{/*
Merges a patch into an object, as Kustomize's strategic merge does for pods: maps by key, the lists
below by name or path, null removes a key, and any other value replaces the old one. Arguments: the
object, the patch.
*/}}
{{- define "sluice.merge" -}}
{{- $into := index . 0 -}}
{{- range $key, $value := index . 1 -}}
{{- $old := get $into $key -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $into $key -}}
{{- else if and (kindIs "map" $value) (kindIs "map" $old) -}}
{{- include "sluice.merge" (list $old $value) -}}
{{- else if and (kindIs "slice" $value) (kindIs "slice" $old) (has $key (list "containers" "initContainers" "env" "volumes" "volumeMounts")) -}}
{{- $id := ternary "mountPath" "name" (eq $key "volumeMounts") -}}
{{- $items := $old -}}
{{- range $item := $value -}}
{{- $found := false -}}
{{- range $items -}}
{{- if eq (get . $id) (get $item $id) -}}
{{- $found = true -}}
{{- include "sluice.merge" (list . $item) -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}{{- $items = append $items $item -}}{{- end -}}
{{- end -}}
{{- $_ := set $into $key $items -}}
{{- else -}}
{{- $_ := set $into $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Merges a patch file of the Kustomize tree. Arguments: the root, the object, the path. */}}
{{- define "sluice.patch" -}}
{{- include "sluice.merge" (list (index . 1) (include "sluice.text" (list (index . 0) (index . 2)) | fromYaml)) -}}
{{- end -}}

{{/* Prints an object with the labels of the release. Arguments: the root, the object. */}}
{{- define "sluice.print" -}}
{{- $root := index . 0 -}}
{{- $object := index . 1 -}}
{{- $labels := dict "app.kubernetes.io/name" "sluice" "app.kubernetes.io/instance" $root.Release.Name "app.kubernetes.io/version" $root.Chart.AppVersion "app.kubernetes.io/managed-by" $root.Release.Service "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version) -}}
{{- $_ := set $object.metadata "labels" (mergeOverwrite $labels ($object.metadata.labels | default dict)) }}
---
{{ toYaml $object }}
{{- end -}}

{{/* Prints all objects of a file. A PodMonitor or PrometheusRule gets the labels that the operator selects. */}}
{{- define "sluice.file" -}}
{{- $root := index . 0 -}}
{{- range regexSplit "(?m)^---$" (include "sluice.text" .) -1 -}}
{{- $object := fromYaml . -}}
{{- if hasPrefix "monitoring.coreos.com/" $object.apiVersion -}}
{{- $_ := set $object.metadata "labels" (mergeOverwrite (omit $object.metadata.labels "release") ($root.Values.podMonitor.labels | default dict)) -}}
{{- end -}}
{{- include "sluice.print" (list $root $object) -}}
{{- end -}}
{{- end -}}

{{/* Completes the pods of Envoy, gateway and picker. Arguments: the root, the pod's spec, its patch. */}}
{{- define "sluice.shared" -}}
{{- $pod := index . 1 -}}
{{- with (index . 0).Values.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end -}}
{{- include "sluice.merge" (list $pod (index . 2 | default dict)) -}}
{{- end -}}

{{/*
Applies anyClient, namespaceSelector and podSelector to a rule of a NetworkPolicy. Arguments: the
rule, the values.
*/}}
{{- define "sluice.callers" -}}
{{- $rule := index . 0 -}}
{{- $values := index . 1 | default dict -}}
{{- if $values.anyClient -}}
{{- $_ := unset $rule "from" -}}
{{- else -}}
{{- if kindIs "map" $values.namespaceSelector -}}
{{- $_ := set (first $rule.from) "namespaceSelector" $values.namespaceSelector -}}
{{- end -}}
{{- if kindIs "map" $values.podSelector -}}
{{- $_ := set $rule "from" (append $rule.from (set (deepCopy (first $rule.from)) "podSelector" $values.podSelector)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The parentRef of a route. Argument: the name of the Gateway, or name, namespace and sectionName. */}}
{{- define "sluice.parent" -}}
{{ kindIs "map" . | ternary . (dict "name" .) | toYaml }}
{{- end -}}

{{/* The value that sets the contents of /models; nothing for the contents of the image. */}}
{{- define "sluice.source" -}}
{{- $models := .Values.models -}}
{{- range list "claim" "image" "initImage" }}{{ if get $models . }}models.{{ . }}{{ end }}{{ end -}}
{{- range .Values.extraVolumeMounts }}{{ if eq (trimSuffix "/" .mountPath) "/models" }}extraVolumeMounts{{ end }}{{ end -}}
{{- end -}}

{{/* The options as a file. Without a source of models and without models, the base's demo model. */}}
{{- define "sluice.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if not (or $config.models $config.model_repository (include "sluice.source" .)) -}}
{{- $_ := set $config "models" (.Files.Get "files/kubernetes/base/sluice.yaml" | fromYaml).models -}}
{{- end -}}
{{ toYaml $config }}
{{- end -}}

{{/* An image. Arguments: the root, the values of the image, the suffix of the default tag. */}}
{{- define "sluice.image" -}}
{{- $image := index . 1 -}}
{{ $image.repository }}{{ with $image.digest }}@{{ . }}{{ else }}:{{ $image.tag | default (printf "%s%s" (index . 0).Chart.AppVersion (index . 2)) }}{{ end }}
{{- end -}}

{{/* The gateway's image. Its default tag is the daemon's, without the suffix of the variant for GPUs. */}}
{{- define "sluice.gateway_image" -}}
{{- $tag := .Values.gateway.image.tag | default (.Values.image.tag | toString | trimSuffix "-cuda") -}}
{{ include "sluice.image" (list . (merge (dict "tag" $tag) .Values.gateway.image) "") }}
{{- end -}}

{{/* The memory of a replica. */}}
{{- define "sluice.memory" -}}
{{ .Values.resources.memory | default (ternary "16Gi" "2Gi" (gt (int .Values.gpus) 0)) }}
{{- end -}}

{{/* A duration of the daemon's options in microseconds. */}}
{{- define "sluice.microseconds" -}}
{{- $units := dict "" 1 "us" 1 "ms" 1000 "s" 1000000 "min" 60000000 "h" 3600000000 -}}
{{- $text := toString . -}}
{{ mul (regexFind "^[0-9]+" $text | int64) (get $units (regexFind "[a-z]*$" $text) | int64) }}
{{- end -}}

{{/* A size of the daemon's options (2GiB), or of Kubernetes (2Gi), in bytes. */}}
{{- define "sluice.bytes" -}}
{{- $text := kindIs "float64" . | ternary (int64 . | toString) (toString .) -}}
{{- $units := dict "" 1 "K" 1024 "M" 1048576 "G" 1073741824 "T" 1099511627776 -}}
{{ mul (regexFind "^[0-9]+" $text | int64) (get $units (regexFind "[KMGT]" $text) | int64) }}
{{- end -}}
