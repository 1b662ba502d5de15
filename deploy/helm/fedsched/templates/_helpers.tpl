{{- /* What the names of all objects begin with; the release `fedsched` has no second word. */}}
{{- define "fedsched.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{- if contains "fedsched" .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ .Release.Name | trunc 31 | trimSuffix "-" }}-fedsched
{{- end -}}
{{- end -}}
{{- end }}

{{- /* With app.kubernetes.io/component beside them: what selects pods, and never changes. */}}
{{- define "fedsched.selector" -}}
app.kubernetes.io/name: fedsched
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fedsched.labels" -}}
{{ include "fedsched.selector" . }}
app.kubernetes.io/part-of: fedsched
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Not the version: a chart that changes nothing else leaves the pods where they are. */}}
{{- define "fedsched.podLabels" -}}
{{ include "fedsched.selector" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "fedsched.controlPlaneAccount" -}}
{{- if .Values.controlPlane.serviceAccount.name -}}
{{ .Values.controlPlane.serviceAccount.name }}
{{- else -}}
{{ include "fedsched.fullname" . }}-control-plane
{{- end -}}
{{- end }}

{{- define "fedsched.agentAccount" -}}
{{- if .Values.agent.serviceAccount.name -}}
{{ .Values.agent.serviceAccount.name }}
{{- else -}}
{{ include "fedsched.fullname" . }}-agent
{{- end -}}
{{- end }}

{{- define "fedsched.bridgeAccount" -}}
{{- if .Values.bridge.serviceAccount.name -}}
{{ .Values.bridge.serviceAccount.name }}
{{- else -}}
{{ include "fedsched.fullname" . }}-bridge
{{- end -}}
{{- end }}

{{- /* The Service of the page: of its own where the API is published. */}}
{{- define "fedsched.webService" -}}
{{ include "fedsched.fullname" . }}-control-plane
{{- if ne .Values.controlPlane.service.type "ClusterIP" }}-web{{ end }}
{{- end }}

{{- /* Where the pods of a part run; the scope is the part. */}}
{{- define "fedsched.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "fedsched.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* Not empty where callers come without a token of ours: the rules say what they may. */}}
{{- define "fedsched.vouchers" -}}
{{- .Values.controlPlane.access.oidc.issuer -}}
{{- .Values.controlPlane.access.clientCertificates.caSecret -}}
{{- if .Values.controlPlane.access.tokenReview.enabled }}tokenReview{{ end }}
{{- end }}

{{- /* What the program would refuse at its start, told before anything is installed. */}}
{{- define "fedsched.checkAccess" -}}
{{- if .Values.controlPlane.access.roleRules }}
{{- if include "fedsched.vouchers" . | empty }}
{{- fail "controlPlane.access: roleRules need oidc.issuer, tokenReview.enabled or clientCertificates.caSecret" }}
{{- end }}
{{- else }}
{{- if include "fedsched.vouchers" . }}
{{- fail "controlPlane.access.roleRules: the rules by which these callers get their roles" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The ConfigMap of control planes. */}}
{{- define "fedsched.controlPlaneSettings" -}}
# What agents in member clusters dial; the certificate must name this host.
FEDERATION_ADVERTISE_ENDPOINT: {{ .Values.controlPlane.host }}:{{ .Values.controlPlane.service.apiPort }}
FEDERATION_ADVERTISE_CA_URL: http://{{ .Values.controlPlane.host }}:{{ .Values.controlPlane.service.webPort }}/ca.pem
# Control planes call each other at their pods' addresses, and expect this name there.
FEDERATION_PEER_NAME: {{ .Values.controlPlane.host }}
{{- with .Values.controlPlane.settings }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The ConfigMap of the agent. */}}
{{- define "fedsched.agentSettings" -}}
# Where the control plane is and how it is known; `fedctl join-token create` prints all of it.
ESTIMATOR_CLUSTER: {{ required "agent.cluster: the name of this cluster" .Values.agent.cluster }}
ESTIMATOR_ENDPOINT: {{ required "agent.endpoint: HOST:PORT of the control plane" .Values.agent.endpoint }}
{{- with .Values.agent.caUrl }}
ESTIMATOR_CA_URL: {{ . }}
{{- end }}
{{- with .Values.agent.caSha256 }}
ESTIMATOR_CA_SHA256: {{ . | quote }}
{{- end }}
{{- with .Values.agent.settings }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Names: cluster DNS of Kubernetes and of OpenShift (port 5353), and the cache on each node. */}}
{{- define "fedsched.dnsEgress" -}}
{{- if .Values.dns.to }}
- to:
    {{- toYaml .Values.dns.to | nindent 4 }}
{{- else }}
- to:
    - namespaceSelector:
        matchExpressions:
          - key: kubernetes.io/metadata.name
            operator: In
            values: [kube-system, openshift-dns]
    - ipBlock:
        cidr: 169.254.0.0/16
{{- end }}
  ports:
    - protocol: UDP
      port: 53
    - protocol: TCP
      port: 53
    - protocol: UDP
      port: 5353
    - protocol: TCP
      port: 5353
{{- end }}

{{- /* Files are read at the start: with other ones other pods take the place of these. */}}
{{- define "fedsched.podAnnotations" -}}
fedsched.io/settings: {{ include "fedsched.controlPlaneSettings" . | sha256sum }}
{{- with .Values.controlPlane.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- with .Values.controlPlane.access.roleRules }}
fedsched.io/role-rules: {{ toJson . | sha256sum }}
{{- end }}
{{- with .Values.controlPlane.schedulerConfig }}
fedsched.io/scheduler-config: {{ toJson . | sha256sum }}
{{- end }}
{{- end }}

{{- /* A control plane of the same release, unless another one is named. */}}
{{- define "fedsched.bridgeEndpoint" -}}
{{- if .Values.bridge.endpoint -}}
{{ .Values.bridge.endpoint }}
{{- else -}}
{{ include "fedsched.fullname" . }}-control-plane.{{ .Release.Namespace }}.svc:{{ .Values.controlPlane.service.apiPort }}
{{- end -}}
{{- end }}
