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

{{- /* Files are read at the start: with other ones other pods take the place of these. */}}
{{- define "fedsched.podAnnotations" -}}
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
fedsched-control-plane.{{ .Release.Namespace }}.svc:7443
{{- end -}}
{{- end }}
