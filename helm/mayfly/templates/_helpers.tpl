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
{{- with default .Values.image.registry (.Values.global).imageRegistry -}}{{ . }}/{{ end -}}{{ $name }}
{{- end -}}

{{/* Names, or objects with a name, as they are written in other charts. */}}
{{- define "mayfly.pullSecrets" -}}
{{- $names := list -}}
{{- range concat (default list (.Values.global).imagePullSecrets) (default list .Values.image.pullSecrets) -}}
{{- if kindIs "map" . }}{{ $names = append $names .name }}{{ else }}{{ $names = append $names . }}{{ end -}}
{{- end -}}
{{- with uniq $names }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "mayfly.storageClass" -}}
{{- coalesce (.Values.global).storageClass .Values.persistence.storageClass (.Values.global).defaultStorageClass | default "" -}}
{{- end -}}

{{/* Whole numbers come as floats where they come from a file, and 268435456 would become 2.68435456e+08. */}}
{{- define "mayfly.settingText" -}}
{{- if kindIs "float64" . -}}{{ if eq . (floor .) }}{{ int64 . }}{{ else }}{{ toString . }}{{ end }}
{{- else -}}{{ toString . }}{{- end -}}
{{- end -}}

{{/* Whether a pod may ask the API server for its StatefulSet. */}}
{{- define "mayfly.mountsToken" -}}
{{- $given := .Values.serviceAccount.automountServiceAccountToken -}}
{{- if kindIs "bool" $given }}{{ $given }}{{ else }}{{ .Values.rbac.create }}{{ end -}}
{{- end -}}

{{/* Whether clients' service is for HTTP as well: within the cluster, or where that is wanted. */}}
{{- define "mayfly.publishesHttp" -}}
{{- if or (eq .Values.service.type "ClusterIP") .Values.service.publishHttp }}true{{ end -}}
{{- end -}}

{{/* What pods that only help have in common with those of nodes: where they may run, and with which image. */}}
{{- define "mayfly.helperPod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- include "mayfly.pullSecrets" . }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "mayfly.helperContainer" -}}
image: {{ include "mayfly.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.containerSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.helperResources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "mayfly.secret" -}}
{{- default (include "mayfly.fullname" .) .Values.auth.existingSecret -}}
{{- end -}}

{{/* The secret with what nodes prove to each other. Values of an older chart lack it. */}}
{{- define "mayfly.clusterSecret" -}}
{{- default (printf "%s-cluster" (include "mayfly.fullname" .)) (default dict .Values.clusterSecret).existingSecret -}}
{{- end -}}

{{/* Whether nodes without it are refused: not while there are pods that run without it. */}}
{{- define "mayfly.clusterSecretDemanded" -}}
{{- $told := get (default dict .Values.clusterSecret) "demanded" | toString -}}
{{- if has $told (list "true" "false") -}}
{{- $told -}}
{{- else -}}
{{- $demanded := "true" -}}
{{- with lookup "apps/v1" "StatefulSet" .Release.Namespace (include "mayfly.fullname" .) -}}
{{- $demanded = "false" -}}
{{- range (index .spec.template.spec.containers 0).env -}}
{{- if eq .name "MAYFLY_CLUSTER_SECRET" -}}
{{- $demanded = "true" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $demanded -}}
{{- end -}}
{{- end -}}

{{- define "mayfly.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "mayfly.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Where TLS is spoken to clients: "" nowhere, else as tls.listen has it. Values of an older chart lack that. */}}
{{- define "mayfly.tlsListen" -}}
{{- if .Values.tls.enabled }}{{ default "instead" .Values.tls.listen }}{{ end -}}
{{- end -}}

{{/* Clients' ports, as JSON: of each its name for others, that of the container, and that of its number and nodePort among
   the values. */}}
{{- define "mayfly.clientPorts" -}}
{{- $listen := include "mayfly.tlsListen" . -}}
{{- $number := int .Values.service.ports.amqp -}}
{{- $found := list -}}
{{- if ne $listen "only" -}}
{{- $name := ternary "amqps" "amqp" (eq $listen "instead") -}}
{{- $found = append $found (dict "name" $name "target" "amqp" "number" $number "inside" 5672 "nodePort" .Values.service.nodePorts.amqp) -}}
{{- end -}}
{{- if has $listen (list "beside" "only") -}}
{{- $number = int (default 5671 .Values.service.ports.amqps) -}}
{{- $found = append $found (dict "name" "amqps" "target" "amqps" "number" $number "inside" 5671 "nodePort" .Values.service.nodePorts.amqps) -}}
{{- end -}}
{{- dict "ports" $found "number" $number | toJson -}}
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
{{- if and (ne (default "instead" .Values.tls.listen) "instead") (not .Values.tls.enabled) -}}
{{- fail (printf "tls.listen=%s takes tls.enabled" .Values.tls.listen) -}}
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
{{- if and (kindIs "bool" .Values.enabled) (not .Values.enabled) -}}
{{- fail "enabled=false is for a parent chart, whose dependency on this one has `condition: mayfly.enabled`" -}}
{{- end -}}
{{- if and .Values.service.nodePorts.http (not .Values.service.publishHttp) -}}
{{- fail "service.nodePorts.http takes service.publishHttp: HTTP is plain, and not published with AMQP" -}}
{{- end -}}
{{- include "mayfly.validatePorts" . -}}
{{- include "mayfly.validateSettings" . -}}
{{- end -}}

{{/* A service can't have two ports of one number; which it has depends on where TLS is spoken, and on HTTP. */}}
{{- define "mayfly.validatePorts" -}}
{{- $ports := (include "mayfly.clientPorts" . | fromJson).ports -}}
{{- if include "mayfly.publishesHttp" . -}}
{{- $ports = append $ports (dict "target" "http" "number" .Values.service.ports.http) -}}
{{- end -}}
{{- $taken := dict -}}
{{- range $ports -}}
{{- $number := int .number | toString -}}
{{- if hasKey $taken $number -}}
{{- fail (printf "service.ports.%s and service.ports.%s are both %s: each takes a port of its own" (get $taken $number) .target $number) -}}
{{- end -}}
{{- $_ := set $taken $number .target -}}
{{- end -}}
{{- end -}}

{{/* A name that is given twice in the environment has the value that stands last. */}}
{{- define "mayfly.validateSettings" -}}
{{- $own := dict "shards" "shards" "replication_factor" "replicationFactor" "seeds" "founders" "join" "founders" "default_user" "auth.username" "default_pass" "auth.password" "cluster_secret" "clusterSecret.value" "cluster_secret_file" "clusterSecret.existingSecret" "cluster_secret_demanded" "clusterSecret.demanded" "name" "fullnameOverride" "data_dir" "persistence" "advertised_peer_address" "clusterDomain" "http_open_pages" "networkPolicy" -}}
{{- if or .Values.failureDomainFromNode .Values.failureDomainFromLabel -}}
{{- $_ := set $own "failure_domain" "failureDomainFromNode=false and no failureDomainFromLabel" -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- $_ := merge $own (dict "amqp_tls_cert" "tls.existingSecret" "amqp_tls_key" "tls.existingSecret" "amqp_tls_ca" "tls.verifyClients" "amqp_tls_address" "tls.listen") -}}
{{- end -}}
{{- if eq (include "mayfly.tlsListen" .) "only" -}}
{{- $_ := set $own "amqp_address" "tls.listen" -}}
{{- end -}}
{{- if .Values.tls.peers.enabled -}}
{{- $_ := merge $own (dict "peer_tls_cert" "tls.peers.existingSecret" "peer_tls_key" "tls.peers.existingSecret" "peer_tls_ca" "tls.peers.existingSecret") -}}
{{- end -}}
{{- range $key, $_ := .Values.settings -}}
{{- if hasKey $own $key -}}
{{- fail (printf "settings.%s: the chart sets that itself; use %s" $key (get $own $key)) -}}
{{- end -}}
{{- end -}}
{{- $settings := .Values.settings -}}
{{- range .Values.extraEnvVars -}}
{{- $key := .name | trimPrefix "MAYFLY_" | lower -}}
{{- if hasPrefix "MAYFLY_" .name -}}
{{- if hasKey $own $key -}}
{{- fail (printf "extraEnvVars: the chart sets %s itself; use %s" .name (get $own $key)) -}}
{{- else if hasKey $settings $key -}}
{{- fail (printf "extraEnvVars: %s is settings.%s too; give it once" .name $key) -}}
{{- end -}}
{{- end -}}
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
