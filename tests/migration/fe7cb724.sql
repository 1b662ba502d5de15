CREATE TABLE public.access_token (
    id text NOT NULL COLLATE pg_catalog."C",
    secret_hash bytea NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    namespaces text[] NOT NULL,
    clusters text[] NOT NULL,
    networks text[] NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone,
    last_used_from text DEFAULT ''::text NOT NULL,
    calls_per_second bigint DEFAULT '0'::bigint NOT NULL,
    calls_at_once bigint DEFAULT '0'::bigint NOT NULL,
    cluster_labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT ck_access_token_expires_later CHECK ((expires_at > created_at)),
    CONSTRAINT ck_access_token_limits_not_negative CHECK (((calls_per_second >= 0) AND (calls_at_once >= 0))),
    CONSTRAINT ck_access_token_role_known CHECK ((role = ANY (ARRAY['viewer'::text, 'scheduler'::text, 'operator'::text, 'bridge'::text, 'admin'::text]))),
    CONSTRAINT ck_access_token_secret_hash_sha256 CHECK ((octet_length(secret_hash) = 32))
);
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    actor text NOT NULL,
    credential_id text NOT NULL,
    address text NOT NULL,
    method text NOT NULL,
    objects text[] NOT NULL,
    result text NOT NULL,
    reason text NOT NULL,
    request_sha256 text NOT NULL,
    unrecorded bigint NOT NULL,
    seal bigint,
    hash bytea,
    CONSTRAINT ck_audit_sealed_has_hash CHECK (((seal IS NULL) = (hash IS NULL)))
);
CREATE TABLE public.audit_head (
    is_only boolean DEFAULT true NOT NULL,
    seal bigint NOT NULL,
    hash bytea NOT NULL,
    pruned_seal bigint NOT NULL,
    pruned_hash bytea NOT NULL,
    CONSTRAINT ck_audit_head_only_one CHECK (is_only)
);
ALTER TABLE public.audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.binding (
    id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    uid text NOT NULL,
    generation bigint NOT NULL,
    version bigint NOT NULL,
    spec jsonb NOT NULL,
    clusters jsonb NOT NULL,
    decision_id uuid,
    observed_affinity text NOT NULL,
    affinity_group text NOT NULL,
    anti_affinity_group text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    last_scheduled_at timestamp with time zone,
    CONSTRAINT ck_binding_counters_positive CHECK (((generation >= 1) AND (version >= 1))),
    CONSTRAINT ck_binding_name_not_empty CHECK ((name <> ''::text))
);
ALTER TABLE public.binding ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.binding_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.cluster (
    id bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    uid text NOT NULL,
    spec jsonb NOT NULL,
    facts jsonb NOT NULL,
    kubernetes_version text NOT NULL,
    generation bigint NOT NULL,
    version bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_cluster_counters_positive CHECK (((generation >= 1) AND (version >= 1))),
    CONSTRAINT ck_cluster_name_not_empty CHECK ((name <> ''::text))
);
CREATE TABLE public.cluster_capacity (
    cluster_id bigint NOT NULL,
    version bigint NOT NULL,
    epoch bigint NOT NULL,
    sequence bigint NOT NULL,
    received_at timestamp with time zone,
    history bigint DEFAULT 0 NOT NULL,
    CONSTRAINT ck_cluster_capacity_version_positive CHECK ((version >= 1))
);
ALTER TABLE public.cluster ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.cluster_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.cluster_report (
    cluster_id bigint NOT NULL,
    body json NOT NULL
);
CREATE TABLE public.credential (
    id text NOT NULL,
    serial bigint NOT NULL,
    kind text NOT NULL,
    cluster_id bigint,
    secret_hash bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT ck_credential_agent_has_cluster CHECK (((kind = 'agent'::text) = (cluster_id IS NOT NULL))),
    CONSTRAINT ck_credential_kind_known CHECK ((kind = ANY (ARRAY['admin'::text, 'agent'::text, 'replica'::text]))),
    CONSTRAINT ck_credential_secret_hash_sha256 CHECK ((octet_length(secret_hash) = 32))
);
ALTER TABLE public.credential ALTER COLUMN serial ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.credential_serial_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.decision (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    binding_id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    binding_generation bigint NOT NULL,
    outcome text NOT NULL,
    clusters jsonb NOT NULL,
    remainder bigint NOT NULL,
    reason text NOT NULL,
    algorithm_revision bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    trace bytea NOT NULL,
    triggers text[] DEFAULT '{}'::text[] NOT NULL,
    day date DEFAULT ((now() AT TIME ZONE 'utc'::text))::date NOT NULL,
    CONSTRAINT ck_decision_generation_positive CHECK ((binding_generation >= 1)),
    CONSTRAINT ck_decision_outcome_known CHECK ((outcome = ANY (ARRAY['SCHEDULED'::text, 'PARTIAL'::text, 'UNSCHEDULABLE'::text, 'NO_FIT'::text]))),
    CONSTRAINT ck_decision_remainder_not_negative CHECK ((remainder >= 0))
)
PARTITION BY RANGE (day);
CREATE TABLE public.decision_20261128 (
    id uuid DEFAULT gen_random_uuid() CONSTRAINT decision_id_not_null NOT NULL,
    binding_id bigint CONSTRAINT decision_binding_id_not_null NOT NULL,
    namespace text CONSTRAINT decision_namespace_not_null NOT NULL COLLATE pg_catalog."C",
    name text CONSTRAINT decision_name_not_null NOT NULL COLLATE pg_catalog."C",
    binding_generation bigint CONSTRAINT decision_binding_generation_not_null NOT NULL,
    outcome text CONSTRAINT decision_outcome_not_null NOT NULL,
    clusters jsonb CONSTRAINT decision_clusters_not_null NOT NULL,
    remainder bigint CONSTRAINT decision_remainder_not_null NOT NULL,
    reason text CONSTRAINT decision_reason_not_null NOT NULL,
    algorithm_revision bigint CONSTRAINT decision_algorithm_revision_not_null NOT NULL,
    created_at timestamp with time zone DEFAULT now() CONSTRAINT decision_created_at_not_null NOT NULL,
    trace bytea CONSTRAINT decision_trace_not_null NOT NULL,
    triggers text[] DEFAULT '{}'::text[] CONSTRAINT decision_triggers_not_null NOT NULL,
    day date DEFAULT '2000-01-01'::date CONSTRAINT decision_day_not_null NOT NULL,
    CONSTRAINT ck_decision_generation_positive CHECK ((binding_generation >= 1)),
    CONSTRAINT ck_decision_outcome_known CHECK ((outcome = ANY (ARRAY['SCHEDULED'::text, 'PARTIAL'::text, 'UNSCHEDULABLE'::text, 'NO_FIT'::text]))),
    CONSTRAINT ck_decision_remainder_not_negative CHECK ((remainder >= 0))
);
CREATE TABLE public.decision_20261129 (
    id uuid DEFAULT gen_random_uuid() CONSTRAINT decision_id_not_null NOT NULL,
    binding_id bigint CONSTRAINT decision_binding_id_not_null NOT NULL,
    namespace text CONSTRAINT decision_namespace_not_null NOT NULL COLLATE pg_catalog."C",
    name text CONSTRAINT decision_name_not_null NOT NULL COLLATE pg_catalog."C",
    binding_generation bigint CONSTRAINT decision_binding_generation_not_null NOT NULL,
    outcome text CONSTRAINT decision_outcome_not_null NOT NULL,
    clusters jsonb CONSTRAINT decision_clusters_not_null NOT NULL,
    remainder bigint CONSTRAINT decision_remainder_not_null NOT NULL,
    reason text CONSTRAINT decision_reason_not_null NOT NULL,
    algorithm_revision bigint CONSTRAINT decision_algorithm_revision_not_null NOT NULL,
    created_at timestamp with time zone DEFAULT now() CONSTRAINT decision_created_at_not_null NOT NULL,
    trace bytea CONSTRAINT decision_trace_not_null NOT NULL,
    triggers text[] DEFAULT '{}'::text[] CONSTRAINT decision_triggers_not_null NOT NULL,
    day date DEFAULT ((now() AT TIME ZONE 'utc'::text))::date CONSTRAINT decision_day_not_null NOT NULL,
    CONSTRAINT ck_decision_generation_positive CHECK ((binding_generation >= 1)),
    CONSTRAINT ck_decision_outcome_known CHECK ((outcome = ANY (ARRAY['SCHEDULED'::text, 'PARTIAL'::text, 'UNSCHEDULABLE'::text, 'NO_FIT'::text]))),
    CONSTRAINT ck_decision_remainder_not_negative CHECK ((remainder >= 0))
);
CREATE TABLE public.decision_20261130 (
    id uuid DEFAULT gen_random_uuid() CONSTRAINT decision_id_not_null NOT NULL,
    binding_id bigint CONSTRAINT decision_binding_id_not_null NOT NULL,
    namespace text CONSTRAINT decision_namespace_not_null NOT NULL COLLATE pg_catalog."C",
    name text CONSTRAINT decision_name_not_null NOT NULL COLLATE pg_catalog."C",
    binding_generation bigint CONSTRAINT decision_binding_generation_not_null NOT NULL,
    outcome text CONSTRAINT decision_outcome_not_null NOT NULL,
    clusters jsonb CONSTRAINT decision_clusters_not_null NOT NULL,
    remainder bigint CONSTRAINT decision_remainder_not_null NOT NULL,
    reason text CONSTRAINT decision_reason_not_null NOT NULL,
    algorithm_revision bigint CONSTRAINT decision_algorithm_revision_not_null NOT NULL,
    created_at timestamp with time zone DEFAULT now() CONSTRAINT decision_created_at_not_null NOT NULL,
    trace bytea CONSTRAINT decision_trace_not_null NOT NULL,
    triggers text[] DEFAULT '{}'::text[] CONSTRAINT decision_triggers_not_null NOT NULL,
    day date DEFAULT ((now() AT TIME ZONE 'utc'::text))::date CONSTRAINT decision_day_not_null NOT NULL,
    CONSTRAINT ck_decision_generation_positive CHECK ((binding_generation >= 1)),
    CONSTRAINT ck_decision_outcome_known CHECK ((outcome = ANY (ARRAY['SCHEDULED'::text, 'PARTIAL'::text, 'UNSCHEDULABLE'::text, 'NO_FIT'::text]))),
    CONSTRAINT ck_decision_remainder_not_negative CHECK ((remainder >= 0))
);
CREATE TABLE public.decision_20261201 (
    id uuid DEFAULT gen_random_uuid() CONSTRAINT decision_id_not_null NOT NULL,
    binding_id bigint CONSTRAINT decision_binding_id_not_null NOT NULL,
    namespace text CONSTRAINT decision_namespace_not_null NOT NULL COLLATE pg_catalog."C",
    name text CONSTRAINT decision_name_not_null NOT NULL COLLATE pg_catalog."C",
    binding_generation bigint CONSTRAINT decision_binding_generation_not_null NOT NULL,
    outcome text CONSTRAINT decision_outcome_not_null NOT NULL,
    clusters jsonb CONSTRAINT decision_clusters_not_null NOT NULL,
    remainder bigint CONSTRAINT decision_remainder_not_null NOT NULL,
    reason text CONSTRAINT decision_reason_not_null NOT NULL,
    algorithm_revision bigint CONSTRAINT decision_algorithm_revision_not_null NOT NULL,
    created_at timestamp with time zone DEFAULT now() CONSTRAINT decision_created_at_not_null NOT NULL,
    trace bytea CONSTRAINT decision_trace_not_null NOT NULL,
    triggers text[] DEFAULT '{}'::text[] CONSTRAINT decision_triggers_not_null NOT NULL,
    day date DEFAULT ((now() AT TIME ZONE 'utc'::text))::date CONSTRAINT decision_day_not_null NOT NULL,
    CONSTRAINT ck_decision_generation_positive CHECK ((binding_generation >= 1)),
    CONSTRAINT ck_decision_outcome_known CHECK ((outcome = ANY (ARRAY['SCHEDULED'::text, 'PARTIAL'::text, 'UNSCHEDULABLE'::text, 'NO_FIT'::text]))),
    CONSTRAINT ck_decision_remainder_not_negative CHECK ((remainder >= 0))
);
CREATE TABLE public.decision_input (
    name bytea NOT NULL,
    body bytea NOT NULL,
    used_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_decision_input_name_sha256 CHECK ((octet_length(name) = 32))
);
CREATE TABLE public.decision_kept (
    id uuid DEFAULT gen_random_uuid() CONSTRAINT decision_id_not_null NOT NULL,
    binding_id bigint CONSTRAINT decision_binding_id_not_null NOT NULL,
    namespace text CONSTRAINT decision_namespace_not_null NOT NULL COLLATE pg_catalog."C",
    name text CONSTRAINT decision_name_not_null NOT NULL COLLATE pg_catalog."C",
    binding_generation bigint CONSTRAINT decision_binding_generation_not_null NOT NULL,
    outcome text CONSTRAINT decision_outcome_not_null NOT NULL,
    clusters jsonb CONSTRAINT decision_clusters_not_null NOT NULL,
    remainder bigint CONSTRAINT decision_remainder_not_null NOT NULL,
    reason text CONSTRAINT decision_reason_not_null NOT NULL,
    algorithm_revision bigint CONSTRAINT decision_algorithm_revision_not_null NOT NULL,
    created_at timestamp with time zone DEFAULT now() CONSTRAINT decision_created_at_not_null NOT NULL,
    trace bytea CONSTRAINT decision_trace_not_null NOT NULL,
    triggers text[] DEFAULT '{}'::text[] CONSTRAINT decision_triggers_not_null NOT NULL,
    day date DEFAULT ((now() AT TIME ZONE 'utc'::text))::date CONSTRAINT decision_day_not_null NOT NULL,
    CONSTRAINT ck_decision_generation_positive CHECK ((binding_generation >= 1)),
    CONSTRAINT ck_decision_outcome_known CHECK ((outcome = ANY (ARRAY['SCHEDULED'::text, 'PARTIAL'::text, 'UNSCHEDULABLE'::text, 'NO_FIT'::text]))),
    CONSTRAINT ck_decision_remainder_not_negative CHECK ((remainder >= 0))
);
CREATE TABLE public.decision_rest (
    id uuid DEFAULT gen_random_uuid() CONSTRAINT decision_id_not_null NOT NULL,
    binding_id bigint CONSTRAINT decision_binding_id_not_null NOT NULL,
    namespace text CONSTRAINT decision_namespace_not_null NOT NULL COLLATE pg_catalog."C",
    name text CONSTRAINT decision_name_not_null NOT NULL COLLATE pg_catalog."C",
    binding_generation bigint CONSTRAINT decision_binding_generation_not_null NOT NULL,
    outcome text CONSTRAINT decision_outcome_not_null NOT NULL,
    clusters jsonb CONSTRAINT decision_clusters_not_null NOT NULL,
    remainder bigint CONSTRAINT decision_remainder_not_null NOT NULL,
    reason text CONSTRAINT decision_reason_not_null NOT NULL,
    algorithm_revision bigint CONSTRAINT decision_algorithm_revision_not_null NOT NULL,
    created_at timestamp with time zone DEFAULT now() CONSTRAINT decision_created_at_not_null NOT NULL,
    trace bytea CONSTRAINT decision_trace_not_null NOT NULL,
    triggers text[] DEFAULT '{}'::text[] CONSTRAINT decision_triggers_not_null NOT NULL,
    day date DEFAULT ((now() AT TIME ZONE 'utc'::text))::date CONSTRAINT decision_day_not_null NOT NULL,
    CONSTRAINT ck_decision_generation_positive CHECK ((binding_generation >= 1)),
    CONSTRAINT ck_decision_outcome_known CHECK ((outcome = ANY (ARRAY['SCHEDULED'::text, 'PARTIAL'::text, 'UNSCHEDULABLE'::text, 'NO_FIT'::text]))),
    CONSTRAINT ck_decision_remainder_not_negative CHECK ((remainder >= 0))
);
CREATE TABLE public.duty (
    name text NOT NULL,
    holder text NOT NULL,
    token bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT ck_duty_token_positive CHECK ((token >= 1))
);
CREATE TABLE public.failover (
    is_only boolean DEFAULT true NOT NULL,
    body jsonb NOT NULL,
    CONSTRAINT ck_failover_only_one CHECK (is_only)
);
CREATE TABLE public.history (
    is_only boolean DEFAULT true NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    database text NOT NULL,
    CONSTRAINT ck_history_only_one CHECK (is_only)
);
CREATE TABLE public.join_token (
    id text NOT NULL,
    secret_hash bytea NOT NULL,
    cluster_name text NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone,
    CONSTRAINT ck_join_token_expires_later CHECK ((expires_at > created_at)),
    CONSTRAINT ck_join_token_secret_hash_sha256 CHECK ((octet_length(secret_hash) = 32))
);
CREATE TABLE public.journal (
    id bigint NOT NULL,
    xid bigint DEFAULT ((pg_current_xact_id())::text)::bigint NOT NULL,
    kind text NOT NULL,
    body bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    nonce bigint DEFAULT 0 NOT NULL
);
CREATE TABLE public.journal_horizon (
    is_only boolean DEFAULT true NOT NULL,
    xid bigint NOT NULL,
    id bigint NOT NULL,
    CONSTRAINT ck_journal_horizon_only_one CHECK (is_only)
);
ALTER TABLE public.journal ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.journal_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.namespace_quota (
    namespace text NOT NULL COLLATE pg_catalog."C",
    limits jsonb NOT NULL,
    changed_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.node_plan (
    decision_id uuid NOT NULL,
    cluster_name text NOT NULL COLLATE pg_catalog."C",
    body jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.plan (
    id bigint NOT NULL,
    state text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    body jsonb NOT NULL,
    CONSTRAINT ck_plan_state_known CHECK ((state = ANY (ARRAY['draft'::text, 'running'::text, 'done'::text, 'stopped'::text])))
);
ALTER TABLE public.plan ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.plan_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.plan_step (
    plan_id bigint NOT NULL,
    number bigint NOT NULL,
    state text NOT NULL,
    version bigint NOT NULL,
    body jsonb NOT NULL,
    CONSTRAINT ck_plan_step_state_known CHECK ((state = ANY (ARRAY['pending'::text, 'moving'::text, 'done'::text, 'skipped'::text, 'failed'::text])))
);
CREATE TABLE public.preemption (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    replicas bigint NOT NULL,
    CONSTRAINT ck_preemption_replicas_positive CHECK ((replicas >= 1))
);
ALTER TABLE public.preemption ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.preemption_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE UNLOGGED TABLE public.presence (
    cluster_id bigint NOT NULL,
    replica text NOT NULL,
    epoch bigint NOT NULL,
    heard_at timestamp with time zone NOT NULL,
    clock_offset_seconds double precision NOT NULL,
    confirmed_sequence bigint NOT NULL,
    blind_seconds double precision DEFAULT '0'::double precision NOT NULL,
    blind_reason text DEFAULT ''::text NOT NULL,
    blind_message text DEFAULT ''::text NOT NULL,
    skipped_objects bigint DEFAULT '0'::bigint NOT NULL
);
CREATE TABLE public.preview (
    id text NOT NULL,
    secret_hash bytea NOT NULL,
    binding_id bigint,
    binding_generation bigint,
    body bytea NOT NULL,
    decision_id uuid,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT ck_preview_binding_known_or_new CHECK (((binding_id IS NULL) = (binding_generation IS NULL))),
    CONSTRAINT ck_preview_secret_hash_sha256 CHECK ((octet_length(secret_hash) = 32))
);
CREATE UNLOGGED TABLE public.replica (
    id text NOT NULL,
    endpoint text NOT NULL,
    heard_at timestamp with time zone NOT NULL
);
CREATE TABLE public.report_picture (
    name bytea NOT NULL,
    day date NOT NULL,
    body bytea NOT NULL,
    CONSTRAINT ck_report_picture_name_sha256 CHECK ((octet_length(name) = 32))
)
PARTITION BY RANGE (day);
CREATE TABLE public.report_picture_20261129 (
    name bytea CONSTRAINT report_picture_name_not_null NOT NULL,
    day date CONSTRAINT report_picture_day_not_null NOT NULL,
    body bytea CONSTRAINT report_picture_body_not_null NOT NULL,
    CONSTRAINT ck_report_picture_name_sha256 CHECK ((octet_length(name) = 32))
);
CREATE TABLE public.report_picture_20261130 (
    name bytea CONSTRAINT report_picture_name_not_null NOT NULL,
    day date CONSTRAINT report_picture_day_not_null NOT NULL,
    body bytea CONSTRAINT report_picture_body_not_null NOT NULL,
    CONSTRAINT ck_report_picture_name_sha256 CHECK ((octet_length(name) = 32))
);
CREATE TABLE public.report_picture_20261201 (
    name bytea CONSTRAINT report_picture_name_not_null NOT NULL,
    day date CONSTRAINT report_picture_day_not_null NOT NULL,
    body bytea CONSTRAINT report_picture_body_not_null NOT NULL,
    CONSTRAINT ck_report_picture_name_sha256 CHECK ((octet_length(name) = 32))
);
CREATE TABLE public.report_picture_rest (
    name bytea CONSTRAINT report_picture_name_not_null NOT NULL,
    day date CONSTRAINT report_picture_day_not_null NOT NULL,
    body bytea CONSTRAINT report_picture_body_not_null NOT NULL,
    CONSTRAINT ck_report_picture_name_sha256 CHECK ((octet_length(name) = 32))
);
CREATE TABLE public.report_round (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    day date NOT NULL,
    kept_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    body bytea NOT NULL
)
PARTITION BY RANGE (day);
CREATE TABLE public.report_round_20261129 (
    id uuid DEFAULT gen_random_uuid() CONSTRAINT report_round_id_not_null NOT NULL,
    day date CONSTRAINT report_round_day_not_null NOT NULL,
    kept_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT report_round_kept_at_not_null NOT NULL,
    body bytea CONSTRAINT report_round_body_not_null NOT NULL
);
CREATE TABLE public.report_round_20261130 (
    id uuid DEFAULT gen_random_uuid() CONSTRAINT report_round_id_not_null NOT NULL,
    day date CONSTRAINT report_round_day_not_null NOT NULL,
    kept_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT report_round_kept_at_not_null NOT NULL,
    body bytea CONSTRAINT report_round_body_not_null NOT NULL
);
CREATE TABLE public.report_round_20261201 (
    id uuid DEFAULT gen_random_uuid() CONSTRAINT report_round_id_not_null NOT NULL,
    day date CONSTRAINT report_round_day_not_null NOT NULL,
    kept_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT report_round_kept_at_not_null NOT NULL,
    body bytea CONSTRAINT report_round_body_not_null NOT NULL
);
CREATE TABLE public.report_round_rest (
    id uuid DEFAULT gen_random_uuid() CONSTRAINT report_round_id_not_null NOT NULL,
    day date CONSTRAINT report_round_day_not_null NOT NULL,
    kept_at timestamp with time zone DEFAULT clock_timestamp() CONSTRAINT report_round_kept_at_not_null NOT NULL,
    body bytea CONSTRAINT report_round_body_not_null NOT NULL
);
CREATE TABLE public.request (
    caller text NOT NULL,
    key text NOT NULL,
    body_hash bytea NOT NULL,
    answer bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_request_body_hash_sha256 CHECK ((octet_length(body_hash) = 32))
);
CREATE TABLE public.reservation (
    namespace text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    uid text NOT NULL,
    clusters text[] NOT NULL,
    body bytea NOT NULL,
    lease_expires_at timestamp with time zone,
    held jsonb DEFAULT '{}'::jsonb NOT NULL
);
CREATE TABLE public.waiting (
    binding_id bigint NOT NULL,
    namespace text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    priority bigint NOT NULL,
    state text NOT NULL,
    gate text DEFAULT ''::text NOT NULL,
    since timestamp with time zone DEFAULT now() NOT NULL,
    attempts bigint NOT NULL,
    next_try timestamp with time zone,
    remainder bigint NOT NULL,
    short_of text NOT NULL,
    overtaken_since timestamp with time zone,
    overtaken_by text DEFAULT ''::text NOT NULL,
    earmarked_since timestamp with time zone,
    gang text DEFAULT ''::text NOT NULL,
    entry text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    times_out timestamp with time zone,
    ordered_at timestamp with time zone,
    nominated jsonb,
    CONSTRAINT ck_waiting_backoff_has_time CHECK (((state = 'backoff'::text) = (next_try IS NOT NULL))),
    CONSTRAINT ck_waiting_counters_not_negative CHECK (((attempts >= 0) AND (remainder >= 0))),
    CONSTRAINT ck_waiting_gated_by CHECK (((state = 'gated'::text) = (gate <> ''::text))),
    CONSTRAINT ck_waiting_state_known CHECK ((state = ANY (ARRAY['active'::text, 'backoff'::text, 'unschedulable'::text, 'gated'::text])))
);
ALTER TABLE ONLY public.decision ATTACH PARTITION public.decision_20261128 FOR VALUES FROM ('0001-01-01') TO ('2026-11-29');
ALTER TABLE ONLY public.decision ATTACH PARTITION public.decision_20261129 FOR VALUES FROM ('2026-11-29') TO ('2026-11-30');
ALTER TABLE ONLY public.decision ATTACH PARTITION public.decision_20261130 FOR VALUES FROM ('2026-11-30') TO ('2026-12-01');
ALTER TABLE ONLY public.decision ATTACH PARTITION public.decision_20261201 FOR VALUES FROM ('2026-12-01') TO ('2026-12-02');
ALTER TABLE ONLY public.decision ATTACH PARTITION public.decision_kept FOR VALUES FROM (MINVALUE) TO ('0001-01-01');
ALTER TABLE ONLY public.decision ATTACH PARTITION public.decision_rest DEFAULT;
ALTER TABLE ONLY public.report_picture ATTACH PARTITION public.report_picture_20261129 FOR VALUES FROM ('2026-11-29') TO ('2026-11-30');
ALTER TABLE ONLY public.report_picture ATTACH PARTITION public.report_picture_20261130 FOR VALUES FROM ('2026-11-30') TO ('2026-12-01');
ALTER TABLE ONLY public.report_picture ATTACH PARTITION public.report_picture_20261201 FOR VALUES FROM ('2026-12-01') TO ('2026-12-02');
ALTER TABLE ONLY public.report_picture ATTACH PARTITION public.report_picture_rest DEFAULT;
ALTER TABLE ONLY public.report_round ATTACH PARTITION public.report_round_20261129 FOR VALUES FROM ('2026-11-29') TO ('2026-11-30');
ALTER TABLE ONLY public.report_round ATTACH PARTITION public.report_round_20261130 FOR VALUES FROM ('2026-11-30') TO ('2026-12-01');
ALTER TABLE ONLY public.report_round ATTACH PARTITION public.report_round_20261201 FOR VALUES FROM ('2026-12-01') TO ('2026-12-02');
ALTER TABLE ONLY public.report_round ATTACH PARTITION public.report_round_rest DEFAULT;
INSERT INTO public.access_token VALUES
	('tok-11256385574c1ce9', '\x3d1b38e602fc43a40b35a1a0209ca69fbad1896e1dab7e97a8305df721042609', 'viewer', 'viewer', '{shop}', '{}', '{}', 'admin', '2026-11-29 16:10:26.493821+00', '2027-02-27 16:10:26.493821+00', NULL, NULL, '', 0, 0, '{}'),
	('tok-416afd10d8da407a', '\x78db3d8b382ea6951a6d767d913bf8cfd018577fa821376f6b825aa92c7c4fcc', 'scheduler', 'scheduler', '{}', '{}', '{}', 'admin', '2026-11-29 16:10:26.551039+00', '2027-02-27 16:10:26.551039+00', NULL, NULL, '', 0, 0, '{}');
INSERT INTO public.alembic_version VALUES
	('0019');
INSERT INTO public.audit OVERRIDING SYSTEM VALUE VALUES
	(1, '2026-11-29 16:10:25.504187+00', 'admin', 'f8feaf1bd20b1ae9', '127.0.0.1', 'Clusters/CreateJoinToken', '{member1}', 'OK', '', 'c911c91ae396aacc17118e9b47069718aff79b48a8da93effe837b1327a2469b', 0, 1, '\xd1dffb7dd46bb40eed9e1c4a042e7fc016cdf35f1968d7939cf7e4c504e94c3f'),
	(2, '2026-11-29 16:10:25.539026+00', 'join token (acb2ba845ab548f3)', 'acb2ba845ab548f3', '127.0.0.1', 'Clusters/EnrollCluster', '{member1}', 'OK', '', '38a13dd3ddb55e925b48b90440b611fed54ca130c391410c8d2ac270192ddcc3', 0, 2, '\xc351170b27b652f66b67119d13de51872b3ce16535d2de0dbaebac8a604183e3'),
	(3, '2026-11-29 16:10:25.87101+00', 'admin', 'f8feaf1bd20b1ae9', '127.0.0.1', 'Clusters/CreateJoinToken', '{member2}', 'OK', '', '075826fb1c17e9bc2c9355364ea64c8deac59c4ed8b9d8c7bd47400210fab2dd', 0, 3, '\xef2db80e847c8033a6dc011e0d1114b8338739928c50f19d15a87c493c87e262'),
	(4, '2026-11-29 16:10:25.884088+00', 'join token (5e9a4ae1beab534b)', '5e9a4ae1beab534b', '127.0.0.1', 'Clusters/EnrollCluster', '{member2}', 'OK', '', '511dd1a406bcabdd9cb6fc04f2589167c0d499e55a4d97d9c67d9ffdacdc8f44', 0, 4, '\x3bae247aacae6c6f592a427133667302a5adf83fb919e4adfdf0b3bbf2b266a3'),
	(5, '2026-11-29 16:10:26.024434+00', 'admin', 'f8feaf1bd20b1ae9', '127.0.0.1', 'Scheduling/Schedule', '{shop/web-0}', 'OK', '', '6569d7853c8e19861060826b1f868fa39ad6622efdc703497486bd2faddcb642', 0, 5, '\x271a7a0bcd189cb8f00e9367968e4b43d70db883d9d482073c558788b87f9a4b'),
	(6, '2026-11-29 16:10:26.083016+00', 'admin', 'f8feaf1bd20b1ae9', '127.0.0.1', 'Scheduling/Schedule', '{shop/web-1}', 'OK', '', 'f8accb51717c588dd2d1d19ad3bfe160f5f24e293efddea8ada266e2c4caf6d1', 0, 6, '\xaed85f0e7a7a194353730fbfc6f6969e25c6b4c033161213e510376921d18f61'),
	(7, '2026-11-29 16:10:26.114733+00', 'admin', 'f8feaf1bd20b1ae9', '127.0.0.1', 'Scheduling/Schedule', '{shop/web-2}', 'OK', '', '5802bf5aca18a875095be3774b7ef9156cb47ca3d9bac961f68db593a129c7c7', 0, 7, '\x59bfe765585207b92db790d9c1cff099419d13c377f36cb0e977053227764e3a'),
	(8, '2026-11-29 16:10:26.140007+00', 'admin', 'f8feaf1bd20b1ae9', '127.0.0.1', 'Scheduling/Schedule', '{shop/web-3}', 'OK', '', 'ef98fcd5bd36fb3383b68ecd1e1e731eeaecf1e82c4811c60cee9dc861f2ed88', 0, 8, '\x5c20bd29f369f3da596baacbffe473f65730e53b527495af47b71ccf6d6eca6f'),
	(9, '2026-11-29 16:10:26.464528+00', 'admin', 'f8feaf1bd20b1ae9', '127.0.0.1', 'Scheduling/Schedule', '{shop/big}', 'OK', '', 'f12adfe72a93d163c0678d768ff0302c9216b1db87788fe311700242b2ee6998', 0, 9, '\xfb881feb04c2b86d23f35d16d1f471cb37d54efc83dc10c3ca708f94e7448fbd'),
	(10, '2026-11-29 16:10:26.493821+00', 'admin', 'f8feaf1bd20b1ae9', '127.0.0.1', 'Access/CreateToken', '{viewer}', 'OK', '', 'd2d66cf7485f0f7c83201ebf60a3819812ff4e0ad99cbcd4863f88aedec4c358', 0, 10, '\x8609da819e13e34f9724fcc19aca1df06ccc705b01980eb0931acb5ec447c628'),
	(11, '2026-11-29 16:10:26.551039+00', 'admin', 'f8feaf1bd20b1ae9', '127.0.0.1', 'Access/CreateToken', '{scheduler}', 'OK', '', '631c4558a4881926a5712562aa17602cdf9c7d12357e9fd48cc12179098ab95c', 0, 11, '\xacac33475c85db6fc4e81c7de821349830e06405cb7071aadb538f380167b727'),
	(12, '2026-11-29 16:10:26.578354+00', 'admin', 'f8feaf1bd20b1ae9', '127.0.0.1', 'Scheduling/Schedule', '{shop/web-0}', 'OK', '', '51200158ee5b05a310b639cb0b9cb5a6dce16ff0fc9ef28b01aef65c9d775765', 0, 12, '\xd8d2bff09a2dd379d76ce23816eb0039edf8afc6b7c1211c395ed579a3efbf5f');
INSERT INTO public.audit_head VALUES
	(true, 12, '\xd8d2bff09a2dd379d76ce23816eb0039edf8afc6b7c1211c395ed579a3efbf5f', 0, '\x0000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO public.binding OVERRIDING SYSTEM VALUE VALUES
	(2, 'shop', 'web-1', '', 1, 2, '{"gang": null, "labels": {}, "priority": 0, "replicas": 2, "resource": {"uid": "u1", "kind": "Deployment", "name": "web-1", "namespace": "shop", "api_version": "apps/v1"}, "placement": {"partial": false, "affinity": null, "tie_break": "hash", "tolerations": [], "affinity_groups": [], "replica_scheduling": {"type": "Divided", "limits": [], "dynamic": false, "preference": "Aggregated", "static_weights": null, "capacity_bounded": false}, "spread_constraints": [], "workload_affinity_key": "", "workload_anti_affinity_key": ""}, "suspended": false, "components": [], "annotations": {}, "certificate": null, "preemptible": true, "requirements": {"request": {"cpu": 1000}, "namespace": "", "node_claim": null, "priority_class_name": ""}, "lease_seconds": null, "min_available": null, "eviction_tasks": [], "scheduler_name": "", "on_cluster_loss": "replace", "on_cluster_return": "keepReplacement", "preemption_policy": "Never", "reschedule_triggered_at": null}', '[{"name": "member1", "replicas": 2}]', 'baa4f138-09be-4d6c-95cc-d087d12af8e7', '', '', '', '2026-11-29 16:10:26.083016+00', '2026-11-29 16:10:26.083016+00', '2026-11-29 16:10:26.083016+00'),
	(3, 'shop', 'web-2', '', 1, 2, '{"gang": null, "labels": {}, "priority": 0, "replicas": 2, "resource": {"uid": "u1", "kind": "Deployment", "name": "web-2", "namespace": "shop", "api_version": "apps/v1"}, "placement": {"partial": false, "affinity": null, "tie_break": "hash", "tolerations": [], "affinity_groups": [], "replica_scheduling": {"type": "Divided", "limits": [], "dynamic": false, "preference": "Aggregated", "static_weights": null, "capacity_bounded": false}, "spread_constraints": [], "workload_affinity_key": "", "workload_anti_affinity_key": ""}, "suspended": false, "components": [], "annotations": {}, "certificate": null, "preemptible": true, "requirements": {"request": {"cpu": 1000}, "namespace": "", "node_claim": null, "priority_class_name": ""}, "lease_seconds": null, "min_available": null, "eviction_tasks": [], "scheduler_name": "", "on_cluster_loss": "replace", "on_cluster_return": "keepReplacement", "preemption_policy": "Never", "reschedule_triggered_at": null}', '[{"name": "member2", "replicas": 2}]', '600fe0be-e006-42ea-8011-927ea5679c3c', '', '', '', '2026-11-29 16:10:26.114733+00', '2026-11-29 16:10:26.114733+00', '2026-11-29 16:10:26.114733+00'),
	(4, 'shop', 'web-3', '', 1, 2, '{"gang": null, "labels": {}, "priority": 0, "replicas": 2, "resource": {"uid": "u1", "kind": "Deployment", "name": "web-3", "namespace": "shop", "api_version": "apps/v1"}, "placement": {"partial": false, "affinity": null, "tie_break": "hash", "tolerations": [], "affinity_groups": [], "replica_scheduling": {"type": "Divided", "limits": [], "dynamic": false, "preference": "Aggregated", "static_weights": null, "capacity_bounded": false}, "spread_constraints": [], "workload_affinity_key": "", "workload_anti_affinity_key": ""}, "suspended": false, "components": [], "annotations": {}, "certificate": null, "preemptible": true, "requirements": {"request": {"cpu": 1000}, "namespace": "", "node_claim": null, "priority_class_name": ""}, "lease_seconds": null, "min_available": null, "eviction_tasks": [], "scheduler_name": "", "on_cluster_loss": "replace", "on_cluster_return": "keepReplacement", "preemption_policy": "Never", "reschedule_triggered_at": null}', '[{"name": "member1", "replicas": 2}]', '5a2dafee-c798-4953-88af-5f48377903f8', '', '', '', '2026-11-29 16:10:26.140007+00', '2026-11-29 16:10:26.140007+00', '2026-11-29 16:10:26.140007+00'),
	(5, 'shop', 'big', '', 1, 2, '{"gang": null, "labels": {}, "priority": 0, "replicas": 100, "resource": {"uid": "u1", "kind": "Deployment", "name": "big", "namespace": "shop", "api_version": "apps/v1"}, "placement": {"partial": false, "affinity": null, "tie_break": "hash", "tolerations": [], "affinity_groups": [], "replica_scheduling": {"type": "Divided", "limits": [], "dynamic": false, "preference": "Aggregated", "static_weights": null, "capacity_bounded": false}, "spread_constraints": [], "workload_affinity_key": "", "workload_anti_affinity_key": ""}, "suspended": false, "components": [], "annotations": {}, "certificate": null, "preemptible": true, "requirements": {"request": {"cpu": 1000}, "namespace": "", "node_claim": null, "priority_class_name": ""}, "lease_seconds": null, "min_available": null, "eviction_tasks": [], "scheduler_name": "", "on_cluster_loss": "replace", "on_cluster_return": "keepReplacement", "preemption_policy": "Never", "reschedule_triggered_at": null}', '[]', 'bc452961-bc99-4916-982e-cdac64a583ac', '', '', '', '2026-11-29 16:10:26.464528+00', '2026-11-29 16:10:26.464528+00', NULL),
	(1, 'shop', 'web-0', '', 2, 3, '{"gang": null, "labels": {}, "priority": 0, "replicas": 3, "resource": {"uid": "u1", "kind": "Deployment", "name": "web-0", "namespace": "shop", "api_version": "apps/v1"}, "placement": {"partial": false, "affinity": null, "tie_break": "hash", "tolerations": [], "affinity_groups": [], "replica_scheduling": {"type": "Divided", "limits": [], "dynamic": false, "preference": "Aggregated", "static_weights": null, "capacity_bounded": false}, "spread_constraints": [], "workload_affinity_key": "", "workload_anti_affinity_key": ""}, "suspended": false, "components": [], "annotations": {}, "certificate": null, "preemptible": true, "requirements": {"request": {"cpu": 1000}, "namespace": "", "node_claim": null, "priority_class_name": ""}, "lease_seconds": null, "min_available": null, "eviction_tasks": [], "scheduler_name": "", "on_cluster_loss": "replace", "on_cluster_return": "keepReplacement", "preemption_policy": "Never", "reschedule_triggered_at": null}', '[{"name": "member2", "replicas": 3}]', '9c3e19aa-7966-46f9-8e28-762e38b29933', '', '', '', '2026-11-29 16:10:26.024434+00', '2026-11-29 16:10:26.578354+00', '2026-11-29 16:10:26.578354+00');
INSERT INTO public.cluster OVERRIDING SYSTEM VALUE VALUES
	(1, 'member1', 'uid-of-member1', '{"held": false, "model": {"grades": [{"grade": 0, "ranges": [{"max": 1000, "min": 0, "name": "cpu"}, {"max": 4294967296, "min": 0, "name": "memory"}]}, {"grade": 1, "ranges": [{"max": 2000, "min": 1000, "name": "cpu"}, {"max": 17179869184, "min": 4294967296, "name": "memory"}]}, {"grade": 2, "ranges": [{"max": 4000, "min": 2000, "name": "cpu"}, {"max": 34359738368, "min": 17179869184, "name": "memory"}]}, {"grade": 3, "ranges": [{"max": 8000, "min": 4000, "name": "cpu"}, {"max": 68719476736, "min": 34359738368, "name": "memory"}]}, {"grade": 4, "ranges": [{"max": 16000, "min": 8000, "name": "cpu"}, {"max": 137438953472, "min": 68719476736, "name": "memory"}]}, {"grade": 5, "ranges": [{"max": 32000, "min": 16000, "name": "cpu"}, {"max": 274877906944, "min": 137438953472, "name": "memory"}]}, {"grade": 6, "ranges": [{"max": 64000, "min": 32000, "name": "cpu"}, {"max": 549755813888, "min": 274877906944, "name": "memory"}]}, {"grade": 7, "ranges": [{"max": 128000, "min": 64000, "name": "cpu"}, {"max": 1099511627776, "min": 549755813888, "name": "memory"}]}, {"grade": 8, "ranges": [{"max": 9223372036854775807, "min": 128000, "name": "cpu"}, {"max": 9223372036854775807, "min": 1099511627776, "name": "memory"}]}]}, "zones": [], "labels": {}, "region": "", "taints": [], "cordoned": false, "provider": "", "annotations": {}, "cordoned_by": "", "cordon_reason": "", "modeling_enabled": true}', '{"placer": "none", "agent_version": "0.1.0", "api_enablements": null, "kubernetes_version": ""}', '', 1, 1, '2026-11-29 16:10:25.539026+00', '2026-11-29 16:10:25.539026+00'),
	(2, 'member2', 'uid-of-member2', '{"held": false, "model": {"grades": [{"grade": 0, "ranges": [{"max": 1000, "min": 0, "name": "cpu"}, {"max": 4294967296, "min": 0, "name": "memory"}]}, {"grade": 1, "ranges": [{"max": 2000, "min": 1000, "name": "cpu"}, {"max": 17179869184, "min": 4294967296, "name": "memory"}]}, {"grade": 2, "ranges": [{"max": 4000, "min": 2000, "name": "cpu"}, {"max": 34359738368, "min": 17179869184, "name": "memory"}]}, {"grade": 3, "ranges": [{"max": 8000, "min": 4000, "name": "cpu"}, {"max": 68719476736, "min": 34359738368, "name": "memory"}]}, {"grade": 4, "ranges": [{"max": 16000, "min": 8000, "name": "cpu"}, {"max": 137438953472, "min": 68719476736, "name": "memory"}]}, {"grade": 5, "ranges": [{"max": 32000, "min": 16000, "name": "cpu"}, {"max": 274877906944, "min": 137438953472, "name": "memory"}]}, {"grade": 6, "ranges": [{"max": 64000, "min": 32000, "name": "cpu"}, {"max": 549755813888, "min": 274877906944, "name": "memory"}]}, {"grade": 7, "ranges": [{"max": 128000, "min": 64000, "name": "cpu"}, {"max": 1099511627776, "min": 549755813888, "name": "memory"}]}, {"grade": 8, "ranges": [{"max": 9223372036854775807, "min": 128000, "name": "cpu"}, {"max": 9223372036854775807, "min": 1099511627776, "name": "memory"}]}]}, "zones": [], "labels": {}, "region": "", "taints": [], "cordoned": false, "provider": "", "annotations": {}, "cordoned_by": "", "cordon_reason": "", "modeling_enabled": true}', '{"placer": "none", "agent_version": "0.1.0", "api_enablements": null, "kubernetes_version": ""}', '', 1, 1, '2026-11-29 16:10:25.884088+00', '2026-11-29 16:10:25.884088+00');
INSERT INTO public.cluster_capacity VALUES
	(1, 4, 1, 1, '2026-11-29 16:10:25.844524+00', 4411736070442047821),
	(2, 5, 1, 1, '2026-11-29 16:10:25.981596+00', 4302816170857154942);
INSERT INTO public.cluster_report VALUES
	(1, '{"report":{"epoch":1,"sequence":1,"snapshot_time":1700000001.0,"summary":{"allocatable":{"memory":68719476736,"pods":440,"cpu":16000},"allocated":{"memory":0,"pods":0,"cpu":0},"allocating":{}},"nodes":{"total":4,"ready":4,"graded":4},"grade_counts":{},"model_hash":"","content_hash":"hash-1-1","pools":{"label_keys":[],"pools":[{"taints":[],"labels":{}}],"resources":["cpu","memory","pods"],"cell_pools":[0],"counts":[4],"minimums":[4000,17179869184,110],"spreads":[0,0,0],"surpluses":[0,0,0],"open_cells":[],"allocatables":[],"kubernetes_minor":0},"interest_version":0,"echoes":[],"picture_age_seconds":0.0,"source":""},"v":1}'),
	(2, '{"report":{"epoch":1,"sequence":1,"snapshot_time":1700000001.0,"summary":{"allocatable":{"memory":68719476736,"pods":440,"cpu":16000},"allocated":{"memory":0,"pods":0,"cpu":0},"allocating":{}},"nodes":{"total":4,"ready":4,"graded":4},"grade_counts":{},"model_hash":"","content_hash":"hash-1-1","pools":{"label_keys":[],"pools":[{"taints":[],"labels":{}}],"resources":["cpu","memory","pods"],"cell_pools":[0],"counts":[4],"minimums":[4000,17179869184,110],"spreads":[0,0,0],"surpluses":[0,0,0],"open_cells":[],"allocatables":[],"kubernetes_minor":0},"interest_version":0,"echoes":[],"picture_age_seconds":0.0,"source":""},"v":1}');
INSERT INTO public.credential OVERRIDING SYSTEM VALUE VALUES
	('f8feaf1bd20b1ae9', 1, 'admin', NULL, '\x0c847bc7d9c483cb7ae8f34e1581e9aca4227aaf428211335e2a64599b94a0f1', '2026-11-29 16:10:25.146609+00', NULL, NULL),
	('fb93b226967b3353', 3, 'agent', 1, '\x879d120849753e925e53d06e4b70984a9a3bdf8de9e4f020150ca2c565fc553e', '2026-11-29 16:10:25.539026+00', '2026-12-29 16:10:25.539026+00', NULL),
	('5721736581b97bd8', 4, 'agent', 2, '\x54b45b04c23902b2ffdcbeae51d566a88002d1fc01e53eec4983aeee070731b2', '2026-11-29 16:10:25.884088+00', '2026-12-29 16:10:25.884088+00', NULL);
INSERT INTO public.decision_20261129 VALUES
	('df520bfb-cee7-4235-8493-a04cd55b4544', 1, 'shop', 'web-0', 1, 'SCHEDULED', '[{"name": "member2", "replicas": 2}]', 0, '', 2, '2026-11-29 16:10:26.024434+00', '\x0000005d28b52ffd2054a1020083a8636c75737465727392a76d656d62657231a76d656d62657232a865766964656e636582a973657175656e636573920101ab6167655f7365636f6e647392cb3fc624dd2f1a9fbecb3fa26e978d4fdf3ba17601000003c928b52ffd609204fd1d00f6bfcb430077d30169b0c012a2302a4f3ee4428905c24bfbd6f606ab1d3088d542b4ec7d0c14a4ed94c94a2957a3d49ba495c974100245dce096de30e52afabfaa5b2d9b91b603b900b200b1009343115ee02c8791655d0c2b3336a4670923b5d0fbaec909315cfc4118ef88a3d139cbdae2ebe54fa94a2ea16b9fedce059bdcfb923f2a11fef661c6ef2b63b3d9e2bba6463d5c4aca16dfc6d6a8772a2a5b7c2b3d50321441992851b6f85ca32cdaae2b187fad4e4e9d2675b89d62a16041030b850a1332a836a3f135ca9d368313e5627209b93f75aa1a6dec919e277f3e1046afd4ae05455ff052839fbd66ace40fedca4148306285811c43567a8ce88c49b111f6bb70097c4df67416f43426efc530eeef2c6b0bbde78c255753b385deb5fc29cb9a0cb36d198bb385de36043967f5b024f4d8420f3ed55a384b650bbd6e527e765a579c9f1a8d2fbee0f83ebcf89a30ae3a2ace2fd6f0539c6b7fc251aa6a205d703f43b717cd503026efe57701720842bde5575dfb10dbc6b0951509db87fdde9d98949d457c7539e68a68d7948837636db6d0ebbd9a7252c298955aa35e26e58f2bd75596f5f4390204b6ebda2c6bdba6d15316168ff4dc94bbd238e1c818caf8f6a2739524c5875663cc88f7d55ab6b917ffb9d9366b2ddb339cee1c682d2ed6627e6e46a2b22ecbea9a1c42391031f05a2137297bafe8718532301b5ba3bedd3558e0d9918b4a418eda08ab6f06a78a04f762daa713b5316d9cabb5acc7d8984091d67ddfb46ecf48edb30d2367da87913ffcbd51e641af27db8c337130bece19edda71b65f067a6e8a494853baf66bb6db5565bdc9d98b92639367c35137dad971ee603325efc530eeef4e2bea750f9d41a3e4bd5b5f5ca3dd9acfac5031d1c15382091423391a0401a0a2c00b05323f1a4404243e02741280800f430e7474c868a22488900d5158dc58f1000485051b457e0c0871640391273a9cece05182838925083a3a7e577e4270db5323217fc3caf14f1b27d286de05a90c351dd5a8b9f6919e23ac30ca2879aa26720627e9e270f88bfcf01dc6c6b9bd9fedbabaf66211b3705b498f22814d7e3425ffc9b0df278def82dbd5694a3e293fec95f4654a1e03475722425955cf1dca1833202002421052477c536dc60dc123694812e26c50516e502284792a71c967e934f8a240bf01b5042291b2687076d17808ca971ef37747035482a79bf0c2e9a9dfd6b0c25289aea445bb054c009573138c045896755599b6c2c003ce250a9f11406eb901761e01b4bb54d4a8a45b691abedaf50845714fe2cdf0bc43cb1b60f881e294379d76af016a375c10f6d0', '{"the binding is new"}', '2026-11-29'),
	('baa4f138-09be-4d6c-95cc-d087d12af8e7', 2, 'shop', 'web-1', 1, 'SCHEDULED', '[{"name": "member1", "replicas": 2}]', 0, '', 2, '2026-11-29 16:10:26.083016+00', '\x0000005d28b52ffd2054a1020083a8636c75737465727392a76d656d62657231a76d656d62657232a865766964656e636582a973657175656e636573920101ab6167655f7365636f6e647392cb3fcdd2f1a9fbe76dcb3fb89374bc6a7efaa17601000003ca28b52ffd609204051e00e6ffcb430077d3016962ab65c46b07bf3ff46b0809c24beb46f606ab1d3088d542b4ec7d0c14a4ed94c94a2957a3d49ba495c974100245dce096febee1ef093a5f4514d95adb01b900b300b1009341115ae02c879165dd0b2c3236a3670923add0fbae4909305efc3f18af88a3d139cbdae2ebe547a5482ea16b9eedee059bdcfb923da910fef661c6ef1b63b3d9e2bba6463b5c4aca16dfc6d6a877050c6cf1adec40c930045751a26cf1b94639b45d5531fe5a9d8c324dea701bd532a142869609142460486d46e36b94336d06e7e9a5e412723fca5435dad81b3d4ff678e08b5ea95dfb89dee0a5063d7bc958c91eda955b35815181008710161e223a65506c84fd2d5e0293afc91d95fd3c4dc97b318cfb3bcbda40ef3963c9d5d46ca0772d3fca9a0cb3ed95c5d9406f1b7e9cb3785811786ca0079f6a2e9c656003bd6e527e765a559c9f1a8d2fbae0f83ebcf89a30aa14a438bf58c34771aefd0945a89a6174c17d0cdd5e343bc594bc97bfc5c7e1e7f4963f75ed436c1bc35854236c1ff67b676252760ef1d5e1981ba25d5121deccc6da40aff76aca490965566a7d8299943fae5c4f59d6d3e70a10d8345c9b656ddb343acac202f18d9e9b72d719a61b194319df5e74aa90a4f4d06a9411f1be9acb3607e33f37db66cd657b86d3dd8ac6e2624de6e766232aebb6a8aec9a0d34ac881d70ab949d97b438f2b5cc56c6c8dfa76b7d2a0b3a216957efcb41156df0cced4080ea6b44fe76953da3857735987b1297d22adfbbe69dd9e919a671b46aeb40f237bf87be36aa5b7936dc695b8185fe78c76ed38db2ffb3c37c524a4215dfb35dbed9ab2dee4cc05c9b1c9b3a1a813ed547156c10224efc530eeef4c1beaf50e953183e4bd5b615ca3dd9acfa83050824387c4122845703c000220c501170c563efa0384233d02741280000f4212a8e488c1240990201aa2acb0c1d2e1c7890a3588f81800c28886214f7238d1b183c486124a16a8e4f85de901c1ed4e8d84fc0d2bc73f6b98460b7a17a412d45444a3e6da377a8eb0c21883e4a89ac8199ca38bbbe12ff2c3f7171be7f67ab6abeada8b43dcc26d1dfd690436f9d190fc27c37e9f34be0b6e57a721f9a4fcb057d25f911cc68d8e4484b2a69e3b940133202002421052477c536dc60dc123694812e26c50516e502284792a71c967e934f8a240bf01b5042291b2687076d17808ca971ef37747035482a79bf0c2e9a9dfd6b0c25289aea445bb054c009573138c045896755599b6c2c002ce250a9f1c406eb901761e01b4bb54d4a8a45b691abedaf50845714fe2cdf0bc43cb1b60f881e294379d76af016a375c10f6d0', '{"the binding is new"}', '2026-11-29'),
	('600fe0be-e006-42ea-8011-927ea5679c3c', 3, 'shop', 'web-2', 1, 'SCHEDULED', '[{"name": "member2", "replicas": 2}]', 0, '', 2, '2026-11-29 16:10:26.114733+00', '\x0000005d28b52ffd2054a1020083a8636c75737465727392a76d656d62657231a76d656d62657232a865766964656e636582a973657175656e636573920101ab6167655f7365636f6e647392cb3fd116872b020c4acb3fc0a3d70a3d70a4a17601000003c928b52ffd609204fd1d00f6bfcb430077d30169b0c012a2302a4f3ee4428905c24bfbd6f606ab1d3088d5424cd9fb182848db29939552ae46a937492b93e920048ab8c12dfda1a6c04a6f082c3dac46da0eb900b200b1009343115ee02c8791655d0c2c3438a4670923b5d0fbaec909325efc4118ef88a3d139cbdae2ebe54fa94a2ea16b9fedee059bdcfb923f2a11fef661c6ef3b83c3d9e2bba6463d5c4aca16dfc6d6a8772a2a5b7c2b3d503214c1999b9b2d3ed7288bb6eb2ac65fab9353a7491d6ea75a2858d0d042a1c2840caacd687c8d72a7cde044bd985c42ee4f9daa461b7ba4e7c99f0f8cd12bb56b41d119bcd4e0672f1a2bf943bb72370a4ab030a083088b8f119d322a36c2fe172f017c4df6ac2ce86b4cde8b61dcdf59d6167acf194bcec6660bbd6bf95396351966db3356670bbd6d0872cef26149f0b1851e7caab97096ca167adda4fcecb4ae3a3f351a5f84d1f17d78f135615c2150757eb1869fea5cfb138e525503e982fb19babd68868a31792fff0b904310ea2dbfeada87d83686b1ac48d83eecf70ec5a4ec2ce2abd3315744bba6443c1a8bb3855eefd5949312caacd41a0533297f5cb9aeb2aca7cfa9a86cd7b559d6b64da3a72c2c8ff4dc94bbd638e5c818caf8f6a273a524e58756a3cc88f7d55cb63918ffb9d9366b2edb349dee1e682e2ed6647e6e46a2b26ecbea9a1c423d1035f05a2137297bafe8718533311b5ba3bedd4160e0d9d18b4a418eda08ab6f06a78a040763daa713c5316d9cabb9accbe0984091d67ddfb46ed348edb30d2367da87913ffcbd710642af27db8c337131bece19edda75b65f067a6e8a495853baf66bb6db5565bdc9198c92639367c35137dab9e2bc82cd25efc530eeef4e2bea750fa551a3e4bd5b615ca3dd9ad3b02070a283c74493284774381002604501180b6680348808497e04e82400011f881c58d931c3c912214336dcb4c0c1e221480a0b378c00191002c9862250763ce1d1c30487134c12acecf85df909c16d8f8d84fc0d2bc73f6f9c481b7a17a432d47464c3e6da477a8eb0c238a3e4299bc8199ca48bcbe12ff2c3f7181be7f67eb6ebeada8b45dcc26d253d8a0436f9d594fc27c37e9f34be0b6e57af29f9a4fcb057d29f29b98c1c9d890865553d77286333202002421052477c536dc60dc123694812e26c50516e502284792a71c967e934f8a240bf01b5042291b2687076d17808ca971ef37747035482a79bf0c2e9a9dfd6b0c25289aea445bb054c009573138c045896755599b6c2c003ce250a9f11406eb901761e01b4bb54d4a8a45b691abedaf50845714fe2cdf0bc43cb1b60f881e294379d76af016a375c10f6d0', '{"the binding is new"}', '2026-11-29'),
	('5a2dafee-c798-4953-88af-5f48377903f8', 4, 'shop', 'web-3', 1, 'SCHEDULED', '[{"name": "member1", "replicas": 2}]', 0, '', 2, '2026-11-29 16:10:26.140007+00', '\x0000005d28b52ffd2054a1020083a8636c75737465727392a76d656d62657231a76d656d62657232a865766964656e636582a973657175656e636573920101ab6167655f7365636f6e647392cb3fd2c083126e978dcb3fc3f7ced916872ba17601000003ca28b52ffd609204051e00e6ffcb430077d30169b0c012a2302a4f3ee4428905c24bfbd6f606ab1d3088d542299ae9988909d929939552ae46a937492b93e920048ab8c12d5d4a8fc12a3f8b6b2e198cb41db900b300b10093431162e02c879165dd0c2d3538a4670923bdd0fbae490a3360fc4118ef88a3d139cbdae2ebe54fa94a2ea16b9fed0e069bdcfb923faa11fef661c6ef4b83c3d9e2bba6463d9c8aca16dfc6d6a8770456b6f8567aa06428823453a66cf1b94659b45d5732fe5a9d9c3a4dea703be552e1c206970a162868506d46e36b943b6d06270ac6e412727fea5435dad8233d4ffe7ca08c5ea95d0b8acee0a5063f7bd558c91fda958300c4448b033b8ab4fc18d139b36223ec87011393afc91e9605bd8dc97b318cfb3bcbda42ef3963c9dddc6ca1772d7fca9a0cb36d1aabb385de36043967fdb026fcd8420f3ed55e386b650bbd6e527e765a579d9f1a8d2fc6e8f83ebcf89a30ae12a83abf58c34f75aefd0947a9ba8174c17d0ddd5e3443c998bc971f06c82108f5965f75ed436c1bc35a56246c1ff67b9762527616f1d5ed982ba25d53235e0dc7da42aff76aca490967566a8d8a99943fae5c5759d6d3e70aac6c1baecdb2b66d1a3d656101f1919e9b72571b271d194319df5e74ae96a800d16a9c21f1bedacb3617e33f37db66ed65bba6d3dd03edc5c5dacccfcd4854d675595d9343a807a2065e2be42665ef153dae904666636bd4b7bb080c3c3b825129c8511b61f5cde05495e0624cfb74a238a68d73b597f5191c1328d2baef9bd6ed1aa97db661e44cfb30f287bf37d23ce8f5649b71264ec6d739a35dbbcef6cb40cf4d31096d4ad77ecd76bbaaac37398b51726cf26c38ea463b599c59b025efc530eeef4e2bea750fad61a3e4bd5b635ca3dd9ad7b42880c283e78413294876381802808581180b68827408094a8004e8240001208a2060e141e309932144384c7191a3e583101517701c09324044120e46a2f080d2c3c7890e289a2860e1f1bbf21382db9e1b09f91b568e7fe2389136f42e4865a8e9e8c6cdb58ff41c61859146c953379133384917a7c35fe487ef3236ceedfd6cd7d5b5178bd885db4a7a54096cf2b329f94f86fd3e697c17dcae6e53f249f961afa44f53f2193aba1311caaa7aee500633202002421052477c536dc60dc123694812e26c50516e502284792a71c967e934f8a240bf01b5042291b2687076d17808ca971ef37747035482a79bf0c2e9a9dfd6b0c25289aea445bb054c009573138c045896755599b6c2c002ce250a9f1c406eb901761e01b4bb54d4a8a45b691abedaf50845714fe2cdf0bc43cb1b60f881e294379d76af016a375c10f6d0', '{"the binding is new"}', '2026-11-29'),
	('bc452961-bc99-4916-982e-cdac64a583ac', 5, 'shop', 'big', 1, 'UNSCHEDULABLE', '[]', 100, '24 replicas are available, 100 wanted; short of cpu in 2 clusters', 2, '2026-11-29 16:10:26.464528+00', '\x0000005d28b52ffd2054a1020083a8636c75737465727392a76d656d62657231a76d656d62657232a865766964656e636582a973657175656e636573920101ab6167655f7365636f6e647392cb3fe3c6a7ef9db22dcb3fdec8b439581062a17601000003af28b52ffd606a042d1d0056bcc344f096d30198a5d75dbe4ab922633369d5c1748bf06f6d6f40d57266564fbf681f678e253b25fd2de56a987a93243259709ac417dc754416c345bb4f4b68c8ed3b39407f07b300a900aa009c656df1f5f2a754279fd035d176777351eefdc92295087ffb10e3f7b5b1b2b2c527a956435c4bcb16dfc6d6aa772e2e5b7c3b55aa6cf1b956b9b49dad48f86b19e594dca7d006f4f2020352b0330427c312046d4390c3c833db06396890c008ad0eb753136622c4ccd0c84ca02041c3051a9ec56a7cad72398b418aba59e113727f2a27d36a5fcff44c592482347aa72677147dc14f0d8a56ded8c9a2da196781c50b1706781c89016253a98e8a8db05fc64d1665886def6cc391735605084036d2835fb51acec56523bd8e567ef69aad589e6a35bec8c3e2fb50b2a430ae10a8e4efd5f0533295d19824dcd7d0adac188ac40aefe59731723842bde557c97d786d5f57ccca74edc37eef50d0cace25961d0fbaa5da594ac49b61ad6ca4d72bbb7273429d9d5aa37068e58f3bd75596f5f53929372937cbdab66bf494755126458881b332c4dc58313d4f18eb4cefbb3625d4b8f11f5dbc365c8d1e5ec3a73311e1cc54cf1dcef84ccf5db9331c393e18c319dfca4a574d5a826859d419f1be5acd3687e34f17db66ad667b86ec60b41892359da78b99eacc5666252993503025069e6590a395bdb7f438833b24b6bb8b433a591d396a23cc7c31485525381c1f5f67ac76d6b16c3f6cf4dcf59ab0e724f7336cb73395f528633c27bf28d386369dcd529033e8a22c2987403bfa9e15de7b5ddcdfb5b46ca4f78cf1e47e7e36d293cb9fb20227efbd2eeeef72b6d4eba17a03c7c97b37c371ad766b3ec30581131d4226a05051c2e385088016057814ec0869100f980409d04d00023e1c3900ea61238a132245365481b123c6c39014333a9208191062c90624537a48f1f1c30487134f12807afcee1491e076e86742fe8619c74f75e49896f424ac93d4d526c78fdc677a8e3083d1c6c9533f9131484d92f3f117f9e13b8d8d747b45dbd94aaee412cb709b991e55e2a2fc7a4efe9461bfd31a9f84db99f79c9c567ed83bebef9c0236202002628c62563ed3db8c1b82074ac34f10e78214e5de244298870d2ff9239d12bea8f4d37e4bce12e900839326e3f99d2f3de4afbd035482579bf0e2e981dbd62c616188373611903ce0d64d6d713a3ca7ceb7423c06dc25863d26e12dba02f80d3b190184bb546454ba944e60c6d1f016b723b4a77b9236c3ff0e2d6fc0f2cb3c5f6c26a7e1b4db06686ed82e26a9576034', '{"the binding is new"}', '2026-11-29'),
	('9c3e19aa-7966-46f9-8e28-762e38b29933', 1, 'shop', 'web-0', 2, 'SCHEDULED', '[{"name": "member2", "replicas": 3}]', 0, '', 2, '2026-11-29 16:10:26.578354+00', '\x0000005d28b52ffd2054a1020083a8636c75737465727392a76d656d62657231a76d656d62657232a865766964656e636582a973657175656e636573920101ab6167655f7365636f6e647392cb3fe722d0e5604189cb3fe2c083126e978da17601000003f628b52ffd60ed04651f002a41080d430077d30169b081e598f3475a56f1d3b942de88ffd676fbad6e8133560bd1b2af71a6b16427497f4bb91aa5de24892ca58361a2e101d34e0f1d54841731fa290f35b203bd00b500b700b347703570565dd832e30d2c363aa56fb9906670feaa490b3560ea8baee6178ec2ca59d6069f737feaca950d3e95a9caad5a88bd83b9663bbfec90ca447dfc8bf557c6e97436f8e2d42888fb7c36f818ba466b4780c0061f4bd0ca5ed2da78ae6cf0558d36893d5bc9d4d7b2d9a99949ebb2a75a2e64f0d0720183050e2ac6287c8d72338ced44c19caadcf64fcd641af5eb95be6787424bc3596a9145b03e78a96d88a30d961da29e714c3aa0601ce8718425c80b9d342e18ae7f0d4cbe2f5de46bae0832709c5375beaef6ef2c6b1bbd6fac259793b38d5ee4fe9465cd5e8cddc6fa6ca3c7bea2ca59412c2915826ca3b74f3517ce22b08d5e37697f579aad3c3f350a1f9ce1a9fc1b3bce85ab05aacef3e5fba94fe49ffb92ca3c94e2f273e838520c2573aacefd35a2ba22d4e37e55e4df8bfdba5856a58b7ffd6bc762d2ae4dead8f5984ca29ea54cbc1babb38d9e7374ca49b9342c3547c54cda0f59725545ebe97308146cd1c316ad8d9dc29ab2ae1e14a7dabd5a57c257fa76da9ee198e181f54af838d2b972f211a26590e6c457d65cd8b998fa9331f6d65cd86f3e9d044d466c8de62763252a336e59c5d923940412849a65cb75b63632ce24761ccfa4fdeb3cf95a457800e2979a8c8a2a8ae16695b19daa15d7ec381bc4c59cf8e944754e0c276b2e5c6b744e2248337eef3463bf915a887d2177e25fd8a17e676833c1198431c69d3899cab531ea59e7617f98e8dbe925f78629f26718b3672aebcdc66698ea357b06a6ea7c5deddfcd30c9b982a80d1ca6eacc198d98aa5177addec028b022044845142b4a7a442802e08581190e6c8638090a4d8404e8240001238e2460e00367ca9322463e5c89b183450491161974241932a0c4920f48aaf8a0f203880a102ba03460e0e39965a8a683e90463fd2ff2d7953846cb0eca91dbef9b71fd53c74c89472f2e9523a72f397222bfd237dc6c218ea9a67260633b4b91e3511fecdfaf34184e760eb167abc8b149ddc271567a548a6bf6bb61aa3f7bfdeba4f0c565cfea0d5395f46d4cb5068f4e055c99a9023d202002429029343b706dc687b08b342675048fb5b2b0f2744ec3bb2648731aadb5e72b870e3554ea27222d7941a44b1f9c7c35fec5f24d353786c8b5411aa0263882116e7beb6d01a2086873a7277917475bc30e0bcfde486a8b75de57cf9286c76924ebdfdbf0ab0f58e8f454474b09e3361731bc3211cec3826c78b33ba000625b2a882be9569a86af761da128dd9348333cdea1c31be0fc407194b7702d75c62e687868', '{"replicas changed"}', '2026-11-29');
INSERT INTO public.decision_input VALUES
	('\x17da7807056ca806cde6357b72cfab2cad129605d630c3e3feeb89625e8a109c', '\x000000c528b52ffd602200dd0500a24a242590b53a000dd5a5e6fc4cb37fc513ac9124614b62bb902d9348fb506a434d979ff7ffef06014715f0f4462d172c665b9e94517692372b243b1e7a561397f5cbd9a061d188eab0c56bbf0f5c428e1c2236fd63c3c4a5fa7430f85649d9c9560a0b4290ae0c9befcdc6faed7d0f69b8dfb6520a2c97cab87ea43819500044d7e77d982b534ea11609cf543e75994ad9028c0f007646b0e100d593a5c23d3ec9e81477c392d3a9eba6867a6a7b90f19c9281636de21769d513', '2026-11-29 16:10:26.024434+00'),
	('\x25ea8a5c89cac7f7c4fbdb57e47d0acfdfba4c8dd56041bc9fff57d7d6e9f1b0', '\x0000004d28b52ffd204421020084a5706172747391c42073d285c548910a21f3eddeb252524b864be82f2aa2cf3671e3b6cc82d33e56c0a7756e726561647991a0a9756e72656164795f63920000a17601', '2026-11-29 16:10:26.024434+00'),
	('\x73d285c548910a21f3eddeb252524b864be82f2aa2cf3671e3b6cc82d33e56c0', '\x0000003f28b52ffd2050b50100a40282a8636c7573746572739282a46e616d65a76d656d62657231a3756964ae7569642d6f662d3232a176010300c013a20ea865f309', '2026-11-29 16:10:26.024434+00');
INSERT INTO public.duty VALUES
	('expire leases', '', 1, '2026-11-29 16:10:30.784926+00'),
	('keep reports', '', 1, '2026-11-29 16:10:30.784926+00'),
	('make partitions', '', 1, '2026-11-29 16:10:30.784926+00'),
	('prune audit', '', 1, '2026-11-29 16:10:30.784926+00'),
	('prune credentials', '', 1, '2026-11-29 16:10:30.784926+00'),
	('prune decisions', '', 1, '2026-11-29 16:10:30.784926+00'),
	('prune inputs of decisions', '', 1, '2026-11-29 16:10:30.784926+00'),
	('prune join tokens', '', 1, '2026-11-29 16:10:30.784926+00'),
	('prune journal', '', 1, '2026-11-29 16:10:30.784926+00'),
	('prune plans', '', 1, '2026-11-29 16:10:30.784926+00'),
	('prune reports', '', 1, '2026-11-29 16:10:30.784926+00'),
	('prune requests', '', 1, '2026-11-29 16:10:30.784926+00'),
	('prune tokens', '', 1, '2026-11-29 16:10:30.784926+00'),
	('seal audit', '', 1, '2026-11-29 16:10:30.784926+00'),
	('queue', '', 1, '2026-11-29 16:10:30.82751+00'),
	('failover', '', 1, '2026-11-29 16:10:30.828998+00'),
	('plans', '', 1, '2026-11-29 16:10:30.832418+00');
INSERT INTO public.history VALUES
	(true, '93b5e676-38bf-4984-85fb-25dbf6ffec83', '7713617731035511800/19043/00000001');
INSERT INTO public.join_token VALUES
	('acb2ba845ab548f3', '\xa3c2fd67b9ab2b15ba347b97882ca65cd3fe54c4496f03ae92f9aca8eaa477cc', 'member1', '2026-11-29 16:10:25.504187+00', '2026-11-29 17:10:25.504187+00', '2026-11-29 16:10:25.539026+00'),
	('5e9a4ae1beab534b', '\x520cc59bad09c37fa6f8e3c9ef617cc50fa90dac5592bfa4a17c28b27da0c87f', 'member2', '2026-11-29 16:10:25.87101+00', '2026-11-29 17:10:25.87101+00', '2026-11-29 16:10:25.884088+00');
INSERT INTO public.journal OVERRIDING SYSTEM VALUE VALUES
	(1, 1108, 'cluster', '\x82a7636c7573746572a76d656d62657231a17601', '2026-11-29 16:10:25.539026+00', 0),
	(2, 1117, 'cluster', '\x82a7636c7573746572a76d656d62657231a17601', '2026-11-29 16:10:25.714746+00', 0),
	(3, 1121, 'report', '\x85a7636c7573746572a76d656d62657231a776657273696f6e02a565706f636801a873657175656e636501a17601', '2026-11-29 16:10:25.844524+00', 964971371573163006),
	(4, 1124, 'cluster', '\x82a7636c7573746572a76d656d62657232a17601', '2026-11-29 16:10:25.884088+00', 0),
	(5, 1126, 'cluster', '\x82a7636c7573746572a76d656d62657232a17601', '2026-11-29 16:10:25.936656+00', 0),
	(6, 1128, 'report', '\x85a7636c7573746572a76d656d62657232a776657273696f6e02a565706f636801a873657175656e636501a17601', '2026-11-29 16:10:25.981596+00', 1653549366937918318),
	(7, 1129, 'binding', '\xde000ea46e616d65a57765622d30a96e616d657370616365a473686f70a56f776e657284ab6170695f76657273696f6ea7617070732f7631a46b696e64aa4465706c6f796d656e74a96e616d657370616365a473686f70a46e616d65a57765622d30a86465636973696f6ed92464663532306266622d636565372d343233352d383439332d613034636435356234353434a8636c75737465727391a76d656d62657232a876657273696f6e739103a573697a65739101a761646f707465649180ac726571756972656d656e7473929184a77265717565737481a3637075cd03e8aa6e6f64655f636c61696dc0a96e616d657370616365a0b37072696f726974795f636c6173735f6e616d65a090a87265706c696361739102aa636f6d706f6e656e74739291a090ac6365727469666963617465739291a76361726566756c90a869735f6669727374c3a17601', '2026-11-29 16:10:26.024434+00', 141571043963585815),
	(8, 1131, 'binding', '\xde000ea46e616d65a57765622d31a96e616d657370616365a473686f70a56f776e657284ab6170695f76657273696f6ea7617070732f7631a46b696e64aa4465706c6f796d656e74a96e616d657370616365a473686f70a46e616d65a57765622d31a86465636973696f6ed92462616134663133382d303962652d346436632d393563632d643038376431326166386537a8636c75737465727391a76d656d62657231a876657273696f6e739103a573697a65739101a761646f707465649180ac726571756972656d656e7473929184a77265717565737481a3637075cd03e8aa6e6f64655f636c61696dc0a96e616d657370616365a0b37072696f726974795f636c6173735f6e616d65a090a87265706c696361739102aa636f6d706f6e656e74739291a090ac6365727469666963617465739291a76361726566756c90a869735f6669727374c3a17601', '2026-11-29 16:10:26.083016+00', 3271092192031382506),
	(9, 1133, 'binding', '\xde000ea46e616d65a57765622d32a96e616d657370616365a473686f70a56f776e657284ab6170695f76657273696f6ea7617070732f7631a46b696e64aa4465706c6f796d656e74a96e616d657370616365a473686f70a46e616d65a57765622d32a86465636973696f6ed92436303066653062652d653030362d343265612d383031312d393237656135363739633363a8636c75737465727391a76d656d62657232a876657273696f6e739104a573697a65739101a761646f707465649180ac726571756972656d656e7473929184a77265717565737481a3637075cd03e8aa6e6f64655f636c61696dc0a96e616d657370616365a0b37072696f726974795f636c6173735f6e616d65a090a87265706c696361739102aa636f6d706f6e656e74739291a090ac6365727469666963617465739291a76361726566756c90a869735f6669727374c3a17601', '2026-11-29 16:10:26.114733+00', 7231927617840927201),
	(10, 1135, 'binding', '\xde000ea46e616d65a57765622d33a96e616d657370616365a473686f70a56f776e657284ab6170695f76657273696f6ea7617070732f7631a46b696e64aa4465706c6f796d656e74a96e616d657370616365a473686f70a46e616d65a57765622d33a86465636973696f6ed92435613264616665652d633739382d343935332d383861662d356634383337373930336638a8636c75737465727391a76d656d62657231a876657273696f6e739104a573697a65739101a761646f707465649180ac726571756972656d656e7473929184a77265717565737481a3637075cd03e8aa6e6f64655f636c61696dc0a96e616d657370616365a0b37072696f726974795f636c6173735f6e616d65a090a87265706c696361739102aa636f6d706f6e656e74739291a090ac6365727469666963617465739291a76361726566756c90a869735f6669727374c3a17601', '2026-11-29 16:10:26.140007+00', 2105617311315947865),
	(11, 1137, 'binding', '\xde000da46e616d65a3626967a96e616d657370616365a473686f70a56f776e657284ab6170695f76657273696f6ea7617070732f7631a46b696e64aa4465706c6f796d656e74a96e616d657370616365a473686f70a46e616d65a3626967a86465636973696f6ed92462633435323936312d626339392d343931362d393832652d636461633634613538336163a8636c75737465727390a573697a657390a761646f7074656490ac726571756972656d656e7473929090aa636f6d706f6e656e7473929090ac636572746966696361746573929090a57761697473c3a869735f6669727374c3a17601', '2026-11-29 16:10:26.464528+00', 4061023890915278526),
	(12, 1143, 'binding', '\xde000da46e616d65a57765622d30a96e616d657370616365a473686f70a56f776e657284ab6170695f76657273696f6ea7617070732f7631a46b696e64aa4465706c6f796d656e74a96e616d657370616365a473686f70a46e616d65a57765622d30a86465636973696f6ed92439633365313961612d373936362d343666392d386532382d373632653338623239393333a8636c75737465727391a76d656d62657232a876657273696f6e739105a573697a65739101a761646f707465649180ac726571756972656d656e7473929184a77265717565737481a3637075cd03e8aa6e6f64655f636c61696dc0a96e616d657370616365a0b37072696f726974795f636c6173735f6e616d65a090a87265706c696361739103aa636f6d706f6e656e74739291a090ac6365727469666963617465739291a76361726566756c90a17601', '2026-11-29 16:10:26.578354+00', 5255202852401825510);
INSERT INTO public.node_plan VALUES
	('5a2dafee-c798-4953-88af-5f48377903f8', 'member1', '{"nodes": [], "claimed": false, "cluster": "member1", "message": "the agent of cluster member1 went away before it answered", "strategy": "", "unplaced": 2}', '2026-11-29 16:10:26.665822+00'),
	('600fe0be-e006-42ea-8011-927ea5679c3c', 'member2', '{"nodes": [], "claimed": false, "cluster": "member2", "message": "the agent of cluster member2 went away before it answered", "strategy": "", "unplaced": 2}', '2026-11-29 16:10:26.665822+00'),
	('9c3e19aa-7966-46f9-8e28-762e38b29933', 'member2', '{"nodes": [], "claimed": false, "cluster": "member2", "message": "the agent of cluster member2 went away before it answered", "strategy": "", "unplaced": 3}', '2026-11-29 16:10:26.665822+00'),
	('baa4f138-09be-4d6c-95cc-d087d12af8e7', 'member1', '{"nodes": [], "claimed": false, "cluster": "member1", "message": "the agent of cluster member1 went away before it answered", "strategy": "", "unplaced": 2}', '2026-11-29 16:10:26.665822+00'),
	('df520bfb-cee7-4235-8493-a04cd55b4544', 'member2', '{"nodes": [], "claimed": false, "cluster": "member2", "message": "the agent of cluster member2 went away before it answered", "strategy": "", "unplaced": 2}', '2026-11-29 16:10:26.665822+00');
INSERT INTO public.presence VALUES
	(1, '', 1, '2026-11-29 16:10:28.818796+00', 0, 0, 0, '', '', 0),
	(2, '', 1, '2026-11-29 16:10:28.818796+00', 0, 0, 0, '', '', 0);
INSERT INTO public.request VALUES
	('f8feaf1bd20b1ae9', 'key-0', '\x120d35e9c8d5d013bc64be4b8fa7b27619f0edcca0a88d56b4660a98004ddff5', '\x7b226465636973696f6e223a2264663532306266622d636565372d343233352d383439332d613034636435356234353434222c226e616d657370616365223a2273686f70222c226e616d65223a227765622d30227d', '2026-11-29 16:10:26.024434+00'),
	('f8feaf1bd20b1ae9', 'key-1', '\x8fc2f4b27e6fb4c87225c70b4eb55eb2b29d6d57e72fa7ac9e3531e059cc3d0f', '\x7b226465636973696f6e223a2262616134663133382d303962652d346436632d393563632d643038376431326166386537222c226e616d657370616365223a2273686f70222c226e616d65223a227765622d31227d', '2026-11-29 16:10:26.083016+00'),
	('f8feaf1bd20b1ae9', 'key-2', '\xae029649af0a4d7d8ca8cf88f8d7bb997ffa28e75fb4497fe4895e6b7c05eb61', '\x7b226465636973696f6e223a2236303066653062652d653030362d343265612d383031312d393237656135363739633363222c226e616d657370616365223a2273686f70222c226e616d65223a227765622d32227d', '2026-11-29 16:10:26.114733+00'),
	('f8feaf1bd20b1ae9', 'key-3', '\x3f3f6549852cf86d78194c5a2410a1cb3debbde9ee4f9cf1f46b083d68fe648c', '\x7b226465636973696f6e223a2235613264616665652d633739382d343935332d383861662d356634383337373930336638222c226e616d657370616365223a2273686f70222c226e616d65223a227765622d33227d', '2026-11-29 16:10:26.140007+00');
INSERT INTO public.reservation VALUES
	('shop', 'web-1', '', '{member1}', '\x8ca8636c75737465727391a76d656d62657231ac726571756972656d656e7473929184a77265717565737481a3637075cd03e8aa6e6f64655f636c61696dc0a96e616d657370616365a0b37072696f726974795f636c6173735f6e616d65a090a87265706c696361739102a96465636973696f6e73929191d92462616134663133382d303962652d346436632d393563632d64303837643132616638653790a56f776e657284ab6170695f76657273696f6ea7617070732f7631a46b696e64aa4465706c6f796d656e74a96e616d657370616365a473686f70a46e616d65a57765622d31aa636f6d706f6e656e74739291a090ac6365727469666963617465739291a76361726566756c90b1696e7465726573745f76657273696f6e739103a761646f707465649100a866696e69736865649100ae67726f776e5f76657273696f6e739103a17601', NULL, '{"": 2, "cpu": 2000}'),
	('shop', 'web-2', '', '{member2}', '\x8ca8636c75737465727391a76d656d62657232ac726571756972656d656e7473929184a77265717565737481a3637075cd03e8aa6e6f64655f636c61696dc0a96e616d657370616365a0b37072696f726974795f636c6173735f6e616d65a090a87265706c696361739102a96465636973696f6e73929191d92436303066653062652d653030362d343265612d383031312d39323765613536373963336390a56f776e657284ab6170695f76657273696f6ea7617070732f7631a46b696e64aa4465706c6f796d656e74a96e616d657370616365a473686f70a46e616d65a57765622d32aa636f6d706f6e656e74739291a090ac6365727469666963617465739291a76361726566756c90b1696e7465726573745f76657273696f6e739104a761646f707465649100a866696e69736865649100ae67726f776e5f76657273696f6e739104a17601', NULL, '{"": 2, "cpu": 2000}'),
	('shop', 'web-3', '', '{member1}', '\x8ca8636c75737465727391a76d656d62657231ac726571756972656d656e7473929184a77265717565737481a3637075cd03e8aa6e6f64655f636c61696dc0a96e616d657370616365a0b37072696f726974795f636c6173735f6e616d65a090a87265706c696361739102a96465636973696f6e73929191d92435613264616665652d633739382d343935332d383861662d35663438333737393033663890a56f776e657284ab6170695f76657273696f6ea7617070732f7631a46b696e64aa4465706c6f796d656e74a96e616d657370616365a473686f70a46e616d65a57765622d33aa636f6d706f6e656e74739291a090ac6365727469666963617465739291a76361726566756c90b1696e7465726573745f76657273696f6e739104a761646f707465649100a866696e69736865649100ae67726f776e5f76657273696f6e739104a17601', NULL, '{"": 2, "cpu": 2000}'),
	('shop', 'web-0', '', '{member2}', '\x8ca8636c75737465727391a76d656d62657232ac726571756972656d656e7473929184a77265717565737481a3637075cd03e8aa6e6f64655f636c61696dc0a96e616d657370616365a0b37072696f726974795f636c6173735f6e616d65a090a87265706c696361739103a96465636973696f6e73929192d92464663532306266622d636565372d343233352d383439332d613034636435356234353434d92439633365313961612d373936362d343666392d386532382d37363265333862323939333390a56f776e657284ab6170695f76657273696f6ea7617070732f7631a46b696e64aa4465706c6f796d656e74a96e616d657370616365a473686f70a46e616d65a57765622d30aa636f6d706f6e656e74739291a090ac6365727469666963617465739291a76361726566756c90b1696e7465726573745f76657273696f6e739103a761646f707465649100a866696e69736865649100ae67726f776e5f76657273696f6e739105a17601', NULL, '{"": 3, "cpu": 3000}');
INSERT INTO public.waiting VALUES
	(5, 'shop', 'big', 0, 'unschedulable', '', '2026-11-29 16:10:26.464528+00', 2, NULL, 100, 'cpu in 2 clusters', NULL, '', NULL, '', '', NULL, NULL, NULL);
SELECT pg_catalog.setval('public.audit_id_seq', 12, true);
SELECT pg_catalog.setval('public.binding_id_seq', 5, true);
SELECT pg_catalog.setval('public.cluster_id_seq', 2, true);
SELECT pg_catalog.setval('public.credential_serial_seq', 4, true);
SELECT pg_catalog.setval('public.journal_id_seq', 12, true);
SELECT pg_catalog.setval('public.plan_id_seq', 1, false);
SELECT pg_catalog.setval('public.preemption_id_seq', 1, false);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.decision
    ADD CONSTRAINT pk_decision PRIMARY KEY (id, day);
ALTER TABLE ONLY public.decision_20261128
    ADD CONSTRAINT decision_20261128_pkey PRIMARY KEY (id, day);
ALTER TABLE ONLY public.decision_20261129
    ADD CONSTRAINT decision_20261129_pkey PRIMARY KEY (id, day);
ALTER TABLE ONLY public.decision_20261130
    ADD CONSTRAINT decision_20261130_pkey PRIMARY KEY (id, day);
ALTER TABLE ONLY public.decision_20261201
    ADD CONSTRAINT decision_20261201_pkey PRIMARY KEY (id, day);
ALTER TABLE ONLY public.decision_kept
    ADD CONSTRAINT decision_kept_pkey PRIMARY KEY (id, day);
ALTER TABLE ONLY public.decision_rest
    ADD CONSTRAINT decision_rest_pkey PRIMARY KEY (id, day);
ALTER TABLE ONLY public.access_token
    ADD CONSTRAINT pk_access_token PRIMARY KEY (id);
ALTER TABLE ONLY public.audit
    ADD CONSTRAINT pk_audit PRIMARY KEY (id);
ALTER TABLE ONLY public.audit_head
    ADD CONSTRAINT pk_audit_head PRIMARY KEY (is_only);
ALTER TABLE ONLY public.binding
    ADD CONSTRAINT pk_binding PRIMARY KEY (id);
ALTER TABLE ONLY public.cluster
    ADD CONSTRAINT pk_cluster PRIMARY KEY (id);
ALTER TABLE ONLY public.cluster_capacity
    ADD CONSTRAINT pk_cluster_capacity PRIMARY KEY (cluster_id);
ALTER TABLE ONLY public.cluster_report
    ADD CONSTRAINT pk_cluster_report PRIMARY KEY (cluster_id);
ALTER TABLE ONLY public.credential
    ADD CONSTRAINT pk_credential PRIMARY KEY (id);
ALTER TABLE ONLY public.decision_input
    ADD CONSTRAINT pk_decision_input PRIMARY KEY (name);
ALTER TABLE ONLY public.duty
    ADD CONSTRAINT pk_duty PRIMARY KEY (name);
ALTER TABLE ONLY public.failover
    ADD CONSTRAINT pk_failover PRIMARY KEY (is_only);
ALTER TABLE ONLY public.history
    ADD CONSTRAINT pk_history PRIMARY KEY (is_only);
ALTER TABLE ONLY public.join_token
    ADD CONSTRAINT pk_join_token PRIMARY KEY (id);
ALTER TABLE ONLY public.journal
    ADD CONSTRAINT pk_journal PRIMARY KEY (id);
ALTER TABLE ONLY public.journal_horizon
    ADD CONSTRAINT pk_journal_horizon PRIMARY KEY (is_only);
ALTER TABLE ONLY public.namespace_quota
    ADD CONSTRAINT pk_namespace_quota PRIMARY KEY (namespace);
ALTER TABLE ONLY public.node_plan
    ADD CONSTRAINT pk_node_plan PRIMARY KEY (decision_id, cluster_name);
ALTER TABLE ONLY public.plan
    ADD CONSTRAINT pk_plan PRIMARY KEY (id);
ALTER TABLE ONLY public.plan_step
    ADD CONSTRAINT pk_plan_step PRIMARY KEY (plan_id, number);
ALTER TABLE ONLY public.preemption
    ADD CONSTRAINT pk_preemption PRIMARY KEY (id);
ALTER TABLE ONLY public.presence
    ADD CONSTRAINT pk_presence PRIMARY KEY (cluster_id);
ALTER TABLE ONLY public.preview
    ADD CONSTRAINT pk_preview PRIMARY KEY (id);
ALTER TABLE ONLY public.replica
    ADD CONSTRAINT pk_replica PRIMARY KEY (id);
ALTER TABLE ONLY public.report_picture
    ADD CONSTRAINT pk_report_picture PRIMARY KEY (name, day);
ALTER TABLE ONLY public.report_round
    ADD CONSTRAINT pk_report_round PRIMARY KEY (id, day);
ALTER TABLE ONLY public.request
    ADD CONSTRAINT pk_request PRIMARY KEY (caller, key);
ALTER TABLE ONLY public.reservation
    ADD CONSTRAINT pk_reservation PRIMARY KEY (namespace, name);
ALTER TABLE ONLY public.waiting
    ADD CONSTRAINT pk_waiting PRIMARY KEY (binding_id);
ALTER TABLE ONLY public.report_picture_20261129
    ADD CONSTRAINT report_picture_20261129_pkey PRIMARY KEY (name, day);
ALTER TABLE ONLY public.report_picture_20261130
    ADD CONSTRAINT report_picture_20261130_pkey PRIMARY KEY (name, day);
ALTER TABLE ONLY public.report_picture_20261201
    ADD CONSTRAINT report_picture_20261201_pkey PRIMARY KEY (name, day);
ALTER TABLE ONLY public.report_picture_rest
    ADD CONSTRAINT report_picture_rest_pkey PRIMARY KEY (name, day);
ALTER TABLE ONLY public.report_round_20261129
    ADD CONSTRAINT report_round_20261129_pkey PRIMARY KEY (id, day);
ALTER TABLE ONLY public.report_round_20261130
    ADD CONSTRAINT report_round_20261130_pkey PRIMARY KEY (id, day);
ALTER TABLE ONLY public.report_round_20261201
    ADD CONSTRAINT report_round_20261201_pkey PRIMARY KEY (id, day);
ALTER TABLE ONLY public.report_round_rest
    ADD CONSTRAINT report_round_rest_pkey PRIMARY KEY (id, day);
ALTER TABLE ONLY public.audit
    ADD CONSTRAINT uq_audit_seal UNIQUE (seal);
ALTER TABLE ONLY public.binding
    ADD CONSTRAINT uq_binding_namespace_name UNIQUE (namespace, name);
ALTER TABLE ONLY public.cluster
    ADD CONSTRAINT uq_cluster_name UNIQUE (name);
CREATE INDEX ix_decision_created_at_id ON ONLY public.decision USING btree (created_at, id);
CREATE INDEX decision_20261129_created_at_id_idx ON public.decision_20261129 USING btree (created_at, id);
CREATE INDEX ix_decision_namespace_created_at_id ON ONLY public.decision USING btree (namespace, created_at, id);
CREATE INDEX decision_20261129_namespace_created_at_id_idx ON public.decision_20261129 USING btree (namespace, created_at, id);
CREATE INDEX ix_decision_namespace_name_created_at_id ON ONLY public.decision USING btree (namespace, name, created_at, id);
CREATE INDEX decision_20261129_namespace_name_created_at_id_idx ON public.decision_20261129 USING btree (namespace, name, created_at, id);
CREATE INDEX decision_20261130_created_at_id_idx ON public.decision_20261130 USING btree (created_at, id);
CREATE INDEX decision_20261130_namespace_created_at_id_idx ON public.decision_20261130 USING btree (namespace, created_at, id);
CREATE INDEX decision_20261130_namespace_name_created_at_id_idx ON public.decision_20261130 USING btree (namespace, name, created_at, id);
CREATE INDEX decision_20261201_created_at_id_idx ON public.decision_20261201 USING btree (created_at, id);
CREATE INDEX decision_20261201_namespace_created_at_id_idx ON public.decision_20261201 USING btree (namespace, created_at, id);
CREATE INDEX decision_20261201_namespace_name_created_at_id_idx ON public.decision_20261201 USING btree (namespace, name, created_at, id);
CREATE INDEX decision_kept_created_at_id_idx ON public.decision_kept USING btree (created_at, id);
CREATE INDEX decision_kept_namespace_created_at_id_idx ON public.decision_kept USING btree (namespace, created_at, id);
CREATE INDEX decision_kept_namespace_name_created_at_id_idx ON public.decision_kept USING btree (namespace, name, created_at, id);
CREATE INDEX decision_rest_created_at_id_idx ON public.decision_rest USING btree (created_at, id);
CREATE INDEX decision_rest_namespace_created_at_id_idx ON public.decision_rest USING btree (namespace, created_at, id);
CREATE INDEX decision_rest_namespace_name_created_at_id_idx ON public.decision_rest USING btree (namespace, name, created_at, id);
CREATE INDEX ix_audit_at_id ON public.audit USING btree (at, id);
CREATE INDEX ix_audit_unsealed ON public.audit USING btree (id) WHERE (seal IS NULL);
CREATE INDEX ix_binding_decision_id ON public.binding USING btree (decision_id);
CREATE INDEX ix_binding_evictions ON public.binding USING btree (namespace, name) WHERE ((spec -> 'eviction_tasks'::text) <> '[]'::jsonb);
CREATE INDEX ix_binding_gang ON public.binding USING btree (namespace, (((spec -> 'gang'::text) ->> 'name'::text))) WHERE (((spec -> 'gang'::text) ->> 'name'::text) IS NOT NULL);
CREATE INDEX ix_binding_namespace_affinity_group ON public.binding USING btree (namespace, affinity_group) WHERE (affinity_group <> ''::text);
CREATE INDEX ix_binding_namespace_anti_affinity_group ON public.binding USING btree (namespace, anti_affinity_group) WHERE (anti_affinity_group <> ''::text);
CREATE INDEX ix_credential_cluster_id ON public.credential USING btree (cluster_id);
CREATE INDEX ix_decision_created_at_id_before ON public.decision_20261128 USING btree (created_at, id);
CREATE INDEX ix_decision_input_used_at ON public.decision_input USING btree (used_at);
CREATE INDEX ix_decision_namespace_created_at_id_before ON public.decision_20261128 USING btree (namespace, created_at, id);
CREATE INDEX ix_decision_namespace_name_created_at_id_before ON public.decision_20261128 USING btree (namespace, name, created_at, id);
CREATE INDEX ix_journal_xid_id ON public.journal USING btree (xid, id);
CREATE INDEX ix_node_plan_created_at ON public.node_plan USING btree (created_at);
CREATE INDEX ix_plan_running ON public.plan USING btree (id) WHERE (state = 'running'::text);
CREATE INDEX ix_plan_step_moving ON public.plan_step USING btree (plan_id) WHERE (state = 'moving'::text);
CREATE INDEX ix_preemption_at ON public.preemption USING btree (at);
CREATE INDEX ix_preview_decision_id ON public.preview USING btree (decision_id);
CREATE INDEX ix_preview_expires_at ON public.preview USING btree (expires_at);
CREATE INDEX ix_report_round_kept_at ON ONLY public.report_round USING btree (kept_at);
CREATE INDEX ix_request_created_at ON public.request USING btree (created_at);
CREATE INDEX ix_reservation_lease_expires_at ON public.reservation USING btree (lease_expires_at) WHERE (lease_expires_at IS NOT NULL);
CREATE INDEX ix_waiting_kept ON public.waiting USING btree (binding_id) WHERE ((earmarked_since IS NOT NULL) OR (nominated IS NOT NULL));
CREATE INDEX report_round_20261129_kept_at_idx ON public.report_round_20261129 USING btree (kept_at);
CREATE INDEX report_round_20261130_kept_at_idx ON public.report_round_20261130 USING btree (kept_at);
CREATE INDEX report_round_20261201_kept_at_idx ON public.report_round_20261201 USING btree (kept_at);
CREATE INDEX report_round_rest_kept_at_idx ON public.report_round_rest USING btree (kept_at);
ALTER INDEX public.pk_decision ATTACH PARTITION public.decision_20261128_pkey;
ALTER INDEX public.ix_decision_created_at_id ATTACH PARTITION public.decision_20261129_created_at_id_idx;
ALTER INDEX public.ix_decision_namespace_created_at_id ATTACH PARTITION public.decision_20261129_namespace_created_at_id_idx;
ALTER INDEX public.ix_decision_namespace_name_created_at_id ATTACH PARTITION public.decision_20261129_namespace_name_created_at_id_idx;
ALTER INDEX public.pk_decision ATTACH PARTITION public.decision_20261129_pkey;
ALTER INDEX public.ix_decision_created_at_id ATTACH PARTITION public.decision_20261130_created_at_id_idx;
ALTER INDEX public.ix_decision_namespace_created_at_id ATTACH PARTITION public.decision_20261130_namespace_created_at_id_idx;
ALTER INDEX public.ix_decision_namespace_name_created_at_id ATTACH PARTITION public.decision_20261130_namespace_name_created_at_id_idx;
ALTER INDEX public.pk_decision ATTACH PARTITION public.decision_20261130_pkey;
ALTER INDEX public.ix_decision_created_at_id ATTACH PARTITION public.decision_20261201_created_at_id_idx;
ALTER INDEX public.ix_decision_namespace_created_at_id ATTACH PARTITION public.decision_20261201_namespace_created_at_id_idx;
ALTER INDEX public.ix_decision_namespace_name_created_at_id ATTACH PARTITION public.decision_20261201_namespace_name_created_at_id_idx;
ALTER INDEX public.pk_decision ATTACH PARTITION public.decision_20261201_pkey;
ALTER INDEX public.ix_decision_created_at_id ATTACH PARTITION public.decision_kept_created_at_id_idx;
ALTER INDEX public.ix_decision_namespace_created_at_id ATTACH PARTITION public.decision_kept_namespace_created_at_id_idx;
ALTER INDEX public.ix_decision_namespace_name_created_at_id ATTACH PARTITION public.decision_kept_namespace_name_created_at_id_idx;
ALTER INDEX public.pk_decision ATTACH PARTITION public.decision_kept_pkey;
ALTER INDEX public.ix_decision_created_at_id ATTACH PARTITION public.decision_rest_created_at_id_idx;
ALTER INDEX public.ix_decision_namespace_created_at_id ATTACH PARTITION public.decision_rest_namespace_created_at_id_idx;
ALTER INDEX public.ix_decision_namespace_name_created_at_id ATTACH PARTITION public.decision_rest_namespace_name_created_at_id_idx;
ALTER INDEX public.pk_decision ATTACH PARTITION public.decision_rest_pkey;
ALTER INDEX public.ix_decision_created_at_id ATTACH PARTITION public.ix_decision_created_at_id_before;
ALTER INDEX public.ix_decision_namespace_created_at_id ATTACH PARTITION public.ix_decision_namespace_created_at_id_before;
ALTER INDEX public.ix_decision_namespace_name_created_at_id ATTACH PARTITION public.ix_decision_namespace_name_created_at_id_before;
ALTER INDEX public.pk_report_picture ATTACH PARTITION public.report_picture_20261129_pkey;
ALTER INDEX public.pk_report_picture ATTACH PARTITION public.report_picture_20261130_pkey;
ALTER INDEX public.pk_report_picture ATTACH PARTITION public.report_picture_20261201_pkey;
ALTER INDEX public.pk_report_picture ATTACH PARTITION public.report_picture_rest_pkey;
ALTER INDEX public.ix_report_round_kept_at ATTACH PARTITION public.report_round_20261129_kept_at_idx;
ALTER INDEX public.pk_report_round ATTACH PARTITION public.report_round_20261129_pkey;
ALTER INDEX public.ix_report_round_kept_at ATTACH PARTITION public.report_round_20261130_kept_at_idx;
ALTER INDEX public.pk_report_round ATTACH PARTITION public.report_round_20261130_pkey;
ALTER INDEX public.ix_report_round_kept_at ATTACH PARTITION public.report_round_20261201_kept_at_idx;
ALTER INDEX public.pk_report_round ATTACH PARTITION public.report_round_20261201_pkey;
ALTER INDEX public.ix_report_round_kept_at ATTACH PARTITION public.report_round_rest_kept_at_idx;
ALTER INDEX public.pk_report_round ATTACH PARTITION public.report_round_rest_pkey;
ALTER TABLE ONLY public.cluster_capacity
    ADD CONSTRAINT fk_cluster_capacity_cluster_id_cluster FOREIGN KEY (cluster_id) REFERENCES public.cluster(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.cluster_report
    ADD CONSTRAINT fk_cluster_report_cluster_id_cluster FOREIGN KEY (cluster_id) REFERENCES public.cluster(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.credential
    ADD CONSTRAINT fk_credential_cluster_id_cluster FOREIGN KEY (cluster_id) REFERENCES public.cluster(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.plan_step
    ADD CONSTRAINT fk_plan_step_plan_id_plan FOREIGN KEY (plan_id) REFERENCES public.plan(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.presence
    ADD CONSTRAINT fk_presence_cluster_id_cluster FOREIGN KEY (cluster_id) REFERENCES public.cluster(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.waiting
    ADD CONSTRAINT fk_waiting_binding_id_binding FOREIGN KEY (binding_id) REFERENCES public.binding(id) ON DELETE CASCADE;
