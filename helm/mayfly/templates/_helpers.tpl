{{- define "mayfly.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Pods' names are nodes' names, and end with a number: room for that. */}}
{{- define "mayfly.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "mayfly.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "mayfly.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "mayfly.headless" -}}
{{- printf "%s-headless" (include "mayfly.fullname" .) -}}
{{- end -}}

{{- define "mayfly.domain" -}}
{{- printf "%s.%s.svc.%s" (include "mayfly.headless" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{- define "mayfly.selectorLabels" -}}
app.kubernetes.io/name: {{ include "mayfly.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "mayfly.labels" -}}
{{ include "mayfly.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "mayfly.annotations" -}}
{{- with .Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "mayfly.image" -}}
{{- $name := printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- if .Values.image.registry -}}{{ .Values.image.registry }}/{{ end -}}{{ $name }}
{{- end -}}

{{- define "mayfly.secret" -}}
{{- default (include "mayfly.fullname" .) .Values.auth.existingSecret -}}
{{- end -}}

{{- define "mayfly.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "mayfly.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "mayfly.tlsSecret" -}}
{{- default (printf "%s-tls" (include "mayfly.fullname" .)) .Values.tls.existingSecret -}}
{{- end -}}

{{- define "mayfly.peerTlsSecret" -}}
{{- default (printf "%s-peer-tls" (include "mayfly.fullname" .)) .Values.tls.peers.existingSecret -}}
{{- end -}}

{{/* Values of an older chart, as `helm upgrade --reuse-values` keeps them, lack what is new. 0 is a value. */}}
{{- define "mayfly.drainTimeout" -}}
{{- if kindIs "invalid" .Values.drainTimeoutSeconds }}60{{ else }}{{ int .Values.drainTimeoutSeconds }}{{ end -}}
{{- end -}}
{{- define "mayfly.spareTimeout" -}}
{{- if kindIs "invalid" .Values.spareTimeoutSeconds }}300{{ else }}{{ int .Values.spareTimeoutSeconds }}{{ end -}}
{{- end -}}

{{/* What no schema can say. */}}
{{- define "mayfly.validate" -}}
{{- if and .Release.IsInstall (lt (int .Values.replicaCount) (int .Values.founders)) -}}
{{- fail (printf "replicaCount is %d, founders is %d: the nodes that begin the cluster must all be there; for fewer set founders=%d too" (int .Values.replicaCount) (int .Values.founders) (int .Values.replicaCount)) -}}
{{- end -}}
{{- $drain := include "mayfly.drainTimeout" . | int -}}
{{- $spare := include "mayfly.spareTimeout" . | int -}}
{{- if ge (add $drain $spare) (int64 .Values.terminationGracePeriodSeconds) -}}
{{- fail (printf "drainTimeoutSeconds (%d) and spareTimeoutSeconds (%d) together must be less than terminationGracePeriodSeconds (%d)" $drain $spare (int .Values.terminationGracePeriodSeconds)) -}}
{{- end -}}
{{- if and .Values.tls.enabled (not .Values.tls.existingSecret) (not .Values.tls.certManager.enabled) -}}
{{- fail "tls.enabled takes tls.existingSecret or tls.certManager.enabled" -}}
{{- end -}}
{{- if and .Values.tls.peers.enabled (not .Values.tls.peers.existingSecret) (not .Values.tls.certManager.enabled) -}}
{{- fail "tls.peers.enabled takes tls.peers.existingSecret or tls.certManager.enabled" -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.enabled takes tls.certManager.issuerRef.name" -}}
{{- end -}}
{{- if and .Values.loadDefinition.enabled (not .Values.loadDefinition.existingSecret) -}}
{{- fail "loadDefinition.enabled takes loadDefinition.existingSecret" -}}
{{- end -}}
{{- end -}}

{{/* What every command of an operator needs to log in. */}}
{{- define "mayfly.login" -}}
- name: MAYFLY_USER
  valueFrom:
    secretKeyRef:
      name: {{ include "mayfly.secret" . }}
      key: username
- name: MAYFLY_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ include "mayfly.secret" . }}
      key: password
{{- end -}}
