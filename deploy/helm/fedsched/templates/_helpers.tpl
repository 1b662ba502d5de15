{{- define "fedsched.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* A control plane of the same release, unless another one is named. */}}
{{- define "fedsched.bridgeEndpoint" -}}
{{- if .Values.bridge.endpoint -}}
{{ .Values.bridge.endpoint }}
{{- else -}}
fedsched-control-plane.{{ .Release.Namespace }}.svc:7443
{{- end -}}
{{- end }}
