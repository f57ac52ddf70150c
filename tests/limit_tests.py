"""The test that reaches each limit, by the name of a field of `Limits`, or by the file and the name of a constant.

`docs/generate.py` puts them on the page of the limits, and `tests/test_docs.py` verifies that they exist.
"""

from __future__ import annotations

from typing import Final

LIMIT_TESTS: Final = {
    "request_size_max_bytes": "transports/http_server/test_server.py::test_exactly_the_limit_passes",
    "reply_size_max_bytes": (
        "transports/stdio/test_server_process.py::test_an_oversize_answer_becomes_an_error_and_reading_goes_on"
    ),
    "batch_max": "core/engine/test_http_rules.py::test_a_batch_that_is_empty_or_too_long_is_refused",
    "head_size_max_bytes": "transports/http_server/test_server.py::test_a_head_over_the_limit_is_refused",
    "headers_max": "transports/http_server/test_server.py::test_a_head_with_too_many_headers_is_refused",
    "head_timeout_s": "transports/http_server/test_server.py::test_slow_heads_and_bodies_are_given_up",
    "body_timeout_s": "transports/http_server/test_server.py::test_slow_heads_and_bodies_are_given_up",
    "refused_body_max_bytes": "transports/http_server/test_refused_bodies.py::test_what_is_read_is_bounded_in_bytes",
    "refused_body_timeout_s": "transports/http_server/test_refused_bodies.py::test_what_is_read_is_bounded_in_time",
    "bodies_max_bytes": "transports/http_server/test_room.py::test_an_address_cannot_take_all_the_room_for_bodies",
    "replies_max_bytes": "app/runtime/test_hub.py::test_answers_that_are_arriving_share_their_room",
    "replies_per_server_max_bytes": "app/runtime/test_hub.py::test_answers_that_are_arriving_share_their_room",
    "reply_ratio_max": "core/wire/http/test_codings.py::test_a_large_body_may_hold_so_many_times_its_size",
    "bodies_per_owner_max_bytes": (
        "transports/http_server/test_room.py::test_an_address_cannot_take_all_the_room_for_bodies"
    ),
    "write_timeout_s": "transports/http_server/test_server.py::test_a_client_that_takes_nothing_is_disconnected",
    "idle_connection_timeout_s": (
        "transports/http_server/test_server.py::test_idle_connections_are_closed_without_a_word"
    ),
    "connections_max": "transports/http_server/test_server.py::test_one_connection_too_many_gets_a_503",
    "connections_per_address_max": "transports/http_server/test_room.py::test_an_address_cannot_take_all_connections",
    "keep_alive_s": (
        "transports/http_server/test_server.py::test_idle_streams_are_kept_alive_and_drain_waits_for_replies"
    ),
    "pings_unanswered_max": "transports/websocket/test_server.py::test_who_answers_no_ping_is_given_up",
    "connect_timeout_s": "transports/http_client/test_client.py::test_set_up_has_a_time_limit",
    "redirects_max": "transports/http_client/test_redirects.py::test_a_circle_is_left",
    "cookies_max": "core/wire/http/test_cookies.py::test_the_cookie_set_longest_ago_is_dropped_first",
    "cookies_max_bytes": "core/wire/http/test_cookies.py::test_a_store_stays_within_its_bounds",
    "pool_idle_max": (
        "transports/http_client/test_client.py::test_idle_connections_are_closed_in_time_and_no_more_are_kept_than_may_be"
    ),
    "pool_idle_timeout_s": (
        "transports/http_client/test_client.py::test_idle_connections_are_closed_in_time_and_no_more_are_kept_than_may_be"
    ),
    "upstream_connections_max": (
        "transports/http_client/test_client.py::test_at_the_limit_requests_wait_in_turn_and_then_are_refused"
    ),
    "upstream_streams_max": "transports/http_client/test_queued_streams.py::test_a_stream_waits_until_another_ends",
    "forward_reply_timeout_s": "transports/reverse_proxy/test_forwarder.py::test_a_server_that_says_nothing",
    "forward_idle_timeout_s": "transports/reverse_proxy/test_forwarder.py::test_a_stream_that_falls_silent_is_cut",
    "outbox_high_bytes": "core/engine/test_hostile_peers.py::test_a_client_that_takes_no_answers_is_paused",
    "outbox_low_bytes": "core/upstream/test_progress.py::test_a_slow_client_pauses_its_server",
    "outboxes_max_bytes": (
        "core/engine/test_memory.py::test_the_client_that_reads_least_is_cut_off_when_all_together_leave_too_much"
    ),
    "outbox_max_bytes": (
        "core/engine/test_hostile_peers.py::test_a_client_over_http_is_refused_while_the_server_takes_nothing"
    ),
    "read_size_bytes": "transports/websocket/test_server.py::test_others_get_their_turn",
    "sessions_max": "core/engine/test_limits.py::test_sessions_max_refuses_one_more_until_one_has_ended",
    "sessions_per_owner_max": (
        "core/engine/test_memory.py::test_the_address_that_has_all_its_sessions_gets_no_more_and_others_do"
    ),
    "initialize_size_max_bytes": "core/engine/test_memory.py::test_an_initialize_that_is_too_long_is_refused",
    "session_memory_max_bytes": "core/engine/test_memory.py::test_large_requests_of_one_session_wait_for_each_other",
    "owner_memory_max_bytes": "core/engine/test_memory.py::test_sessions_of_one_principal_share_what_it_may_have",
    "memory_max_bytes": "core/engine/test_memory.py::test_sessions_of_one_principal_share_what_it_may_have",
    "session_idle_ttl_s": "core/engine/test_event_streams.py::test_streams_end_with_their_session",
    "page_session_idle_ttl_s": (
        "app/admin/test_servers.py::test_a_session_nobody_uses_ends_and_the_next_call_begins_another"
    ),
    "unclaimed_session_ttl_s": (
        "core/engine/test_dialogues_affinity.py::test_a_session_that_may_not_be_wanted_ends_soon"
    ),
    "exchanges_per_session_max": (
        "core/engine/test_dialogues_sessions.py::test_requests_of_a_session_are_bounded_until_one_is_answered"
    ),
    "questions_per_session_max": (
        "core/engine/test_dialogues_sessions.py::test_questions_are_bounded_and_each_that_waits_has_its_own_time"
    ),
    "question_timeout_s": (
        "core/engine/test_hostile_peers.py::test_question_timeout_answers_the_server_and_notifies_the_client"
    ),
    "calls_per_owner_max": "core/engine/test_quotas.py::test_calls_of_all_sessions_of_an_owner_are_bounded",
    "streams_per_owner_max": "core/engine/test_quotas.py::test_streams_of_all_sessions_of_an_owner_are_bounded",
    "streams_per_session_max": "core/engine/test_hostile_peers.py::test_streams_per_session_max_ends_the_oldest",
    "greeting_timeout_s": "core/engine/test_legacy_sse.py::test_greeting_timeout_ends_a_stream_without_initialize",
    "resumable_per_session_max": (
        "core/engine/test_event_streams.py::test_resumable_per_session_max_forgets_finished_streams_then_those_cut_off"
    ),
    "events_max": (
        "core/engine/test_event_streams.py::test_events_max_drops_progress_and_never_a_question_or_the_answer"
    ),
    "events_per_session_max_bytes": (
        "core/engine/test_event_streams.py::test_events_per_session_max_bytes_forgets_finished_streams_before_it_drops_from_open_ones"
    ),
    "events_max_bytes": (
        "core/engine/test_event_streams.py::test_events_max_bytes_takes_from_the_session_that_was_sent_nothing_for_longest"
    ),
    "events_stored_max": "core/engine/test_event_store.py::test_events_stored_max_drops_as_memory_does",
    "events_stored_per_session_max_bytes": (
        "core/engine/test_event_store.py::test_events_stored_per_session_max_bytes_forgets_finished_streams_first"
    ),
    "events_stored_max_bytes": (
        "core/engine/test_event_store.py::test_events_stored_max_bytes_forgets_the_oldest_that_is_over_in_any_session"
    ),
    "events_saving_max": (
        "core/engine/test_event_store.py::test_events_saving_max_bounds_how_many_wait_for_a_slow_storage"
    ),
    "events_saving_max_bytes": (
        "core/engine/test_event_store.py::test_events_saving_max_bytes_bounds_what_waits_for_a_slow_storage"
    ),
    "stream_ttl_s": (
        "core/engine/test_dialogues_streams.py::test_an_answer_that_was_missed_can_be_had_until_it_is_too_old"
    ),
    "stream_commit_s": "core/engine/test_event_streams.py::test_each_silent_reply_is_primed_after_its_own_wait",
    "stream_retry_s": (
        "core/downstream/test_event_streams.py::test_the_retry_time_is_sent_once_to_a_client_that_can_resume"
    ),
    "held_per_session_max": (
        "core/engine/test_limits.py::test_held_per_session_max_drops_the_oldest_message_and_never_a_change"
    ),
    "held_per_session_max_bytes": "core/engine/test_hostile_peers.py::test_held_messages_are_bounded_in_bytes",
    "held_timeout_s": (
        "core/engine/test_dialogues_sessions.py::test_questions_are_bounded_and_each_that_waits_has_its_own_time"
    ),
    "subscriptions_per_session_max": (
        "core/engine/test_limits.py::test_subscriptions_per_session_max_bounds_replayed_subscriptions_not_requests"
    ),
    "subscriptions_per_session_max_bytes": (
        "core/engine/test_memory.py::test_the_params_of_subscriptions_are_remembered_up_to_their_size"
    ),
    "collect_s": "core/engine/test_suspended_calls.py::test_questions_that_come_within_the_pause_are_asked_together",
    "suspended_call_ttl_s": (
        "core/input_required/test_suspended_calls.py::test_a_call_whose_client_does_not_come_back_is_given_up"
    ),
    "suspended_call_tick_s": (
        "core/engine/test_suspended_calls_meanwhile.py::test_a_server_that_waits_for_answers_gets_progress"
    ),
    "suspended_calls_per_session_max": (
        "core/engine/test_suspended_calls_meanwhile.py::test_suspended_calls_are_bounded"
    ),
    "suspended_calls_max": "core/engine/test_suspended_calls_meanwhile.py::test_suspended_calls_are_bounded",
    "suspended_call_logs_max": "core/engine/test_suspended_calls_meanwhile.py::test_held_log_messages_are_bounded",
    "suspended_call_logs_max_bytes": "core/engine/test_stateless_isolation.py::test_held_log_messages_are_bounded",
    "held_answers_max_bytes": "core/engine/test_stateless_isolation.py::test_an_answer_too_large_to_hold_is_lost",
    "listens_per_session_max": (
        "core/engine/test_dialogues_listens.py::test_subscriptions_and_their_resources_are_bounded"
    ),
    "listen_ack_s": (
        "core/engine/test_dialogues_listens.py::test_a_server_that_takes_too_long_to_confirm_is_not_waited_for"
    ),
    "url_elicitation_wait_s": "core/engine/test_malformed_messages.py::test_a_visit_is_waited_for_only_so_long",
    "task_ttl_s": "core/tasks/test_requests.py::test_a_task_is_shown_until_its_time_is_over",
    "task_ttl_max_s": "core/tasks/test_quota.py::test_a_task_lives_as_long_as_its_client_wants_within_bounds",
    "task_poll_s": "core/engine/test_tasks_acceptance.py::test_ttl_and_poll_interval_are_as_configured",
    "task_poll_max_s": "core/engine/test_tasks_notifications.py::test_pauses_grow_for_a_task_without_waiting_clients",
    "task_look_s": "core/tasks/test_requests.py::test_tasks_get_is_answered_in_time_even_if_the_server_is_silent",
    "task_grace_s": "core/tasks/test_local_tasks.py::test_a_call_becomes_a_task_when_it_is_time_unless_it_is_over",
    "task_after_s": "core/tasks/test_local_tasks.py::test_a_call_becomes_a_task_when_it_is_time_unless_it_is_over",
    "tasks_max": "core/engine/test_tasks_acceptance.py::test_each_limit_is_enforced_and_named",
    "tasks_per_principal_max": "core/engine/test_tasks_acceptance.py::test_each_limit_is_enforced_and_named",
    "tasks_per_session_max": "core/engine/test_tasks_acceptance.py::test_each_limit_is_enforced_and_named",
    "task_inline_max_bytes": (
        "core/engine/test_tasks_many.py::test_a_large_result_is_beside_the_record_and_not_in_memory"
    ),
    "task_questions_max": "core/engine/test_tasks_malformed.py::test_open_questions_of_a_task_are_bounded",
    "task_page_max": "core/engine/test_tasks_malformed.py::test_a_list_of_tasks_comes_in_pages",
    "task_farewell_s": "core/engine/test_tasks_many.py::test_thousands_of_tasks_leave_nothing_behind",
    "probe_timeout_s": "core/upstream/test_handshake_turns.py::test_the_probe_is_given_up_when_the_other_era_is_tried",
    "probe_start_timeout_s": (
        "core/upstream/test_handshake_turns.py::test_the_probe_is_given_up_when_the_other_era_is_tried"
    ),
    "session_check_timeout_s": (
        "core/engine/test_dialogues_session_checks.py::test_a_session_that_answers_goes_on_and_the_refusal_is_passed"
    ),
    "server_era_ttl_s": "core/upstream/test_handshake_denied.py::test_a_denial_is_believed_for_so_long",
    "rounds_max": "core/engine/test_rounds_messages.py::test_a_call_is_given_up_after_the_limit_of_rounds",
    "round_pause_s": "core/engine/test_rounds_messages.py::test_pauses_grow_up_to_their_bound",
    "round_pause_max_s": "core/engine/test_rounds_messages.py::test_pauses_grow_up_to_their_bound",
    "lookup_s": "core/engine/test_hostile_eras.py::test_a_list_of_tools_that_does_not_come_delays_a_call_briefly",
    "listen_pause_s": "core/subscriptions/test_server_listens.py::test_changes_of_the_filter_are_gathered_for_a_moment",
    "schema_pages_max": "core/engine/test_tool_discovery.py::test_pages_are_bounded",
    "definitions_ttl_s": (
        "core/engine/test_dialogues_definitions.py::"
        "test_a_server_without_sessions_is_listed_again_when_the_time_is_over"
    ),
    "cached_results_max": "core/caching/test_result_cache.py::test_the_result_that_was_used_least_lately_goes_first",
    "cached_results_max_bytes": "core/caching/test_result_cache.py::test_what_is_kept_is_bounded_in_bytes",
    "cached_result_max_bytes": "core/caching/test_result_cache.py::test_what_is_kept_is_bounded_in_bytes",
    "cache_ttl_max_s": "core/caching/test_result_cache.py::test_a_long_time_is_cut",
    "core/caching/result_cache.py::PARENTS_MAX": (
        "core/caching/test_result_cache.py::test_an_update_far_down_drops_all_reads_of_its_server"
    ),
    "tools_known_max": "core/engine/test_tool_discovery.py::test_known_tools_are_bounded_to_the_latest_page",
    "rate_buckets_max": ("core/engine/test_dialogues_rates.py::test_a_caller_for_whom_there_is_no_room_is_refused"),
    "audiences_max": "core/input_required/test_replay.py::test_the_audience_whose_list_is_oldest_is_forgotten_first",
    "children_max": "core/engine/test_limits.py::test_children_max_refuses_one_more_until_one_is_gone",
    "notifications_waiting_max": (
        "core/engine/test_hostile_peers.py::test_notifications_wait_for_the_upstream_in_order_with_requests"
    ),
    "notifications_waiting_max_bytes": (
        "core/engine/test_memory.py::test_notifications_that_wait_for_a_server_have_a_size_together"
    ),
    "notifications_open_high": (
        "core/engine/test_hostile_peers.py::test_notifications_open_high_pauses_their_sender_until_some_have_arrived"
    ),
    "notifications_open_max": (
        "core/engine/test_hostile_peers.py::test_notifications_open_max_drops_those_whose_sender_cannot_be_paused"
    ),
    "notification_timeout_s": (
        "core/engine/test_hostile_peers.py::test_a_notification_that_its_server_does_not_take_times_out"
    ),
    "stream_farewell_s": (
        "core/engine/test_dialogues_losses.py::test_the_server_ends_the_stream_of_a_deleted_session_in_its_time"
    ),
    "start_timeout_s": (
        "core/engine/test_recovery.py::test_a_server_that_is_silent_while_starting_is_given_up_and_closed"
    ),
    "post_wait_s": "transports/sse/test_client.py::test_what_has_not_left_whole_is_not_overtaken",
    "listen_wait_s": (
        "core/engine/test_dialogues_losses.py::test_the_first_requests_wait_for_the_event_stream_but_not_for_ever"
    ),
    "listen_retry_s": (
        "core/engine/test_dialogues_losses.py::test_a_stream_that_cannot_be_opened_is_tried_with_growing_pauses"
    ),
    "listen_retry_max_s": (
        "core/upstream/test_resumption.py::test_no_pause_is_longer_than_the_maximum_unless_the_server_wants_it"
    ),
    "resume_failures_max": (
        "core/engine/test_resumption.py::test_resume_failures_max_attempts_in_a_row_are_made_with_growing_pauses"
    ),
    "polling_pause_min_s": (
        "core/upstream/test_resumption.py::test_pauses_are_doubled_with_each_failure_up_to_a_finite_factor"
    ),
    "polling_pause_max_s": (
        "core/upstream/test_resumption.py::test_pauses_are_doubled_with_each_failure_up_to_a_finite_factor"
    ),
    "polling_idle_max_s": (
        "core/engine/test_resumption.py::test_a_reply_without_messages_for_the_time_limit_is_given_up"
    ),
    "reply_timeout_s": "core/upstream/test_writer.py::test_a_request_is_given_up_after_silence",
    "cancel_grace_s": "core/engine/test_hostile_peers.py::test_a_reply_that_stays_open_after_its_answer_is_ended",
    "restart_backoff_s": (
        "core/engine/test_dialogues_losses.py::test_the_pauses_between_failed_starts_grow_until_one_succeeds"
    ),
    "restart_backoff_max_s": "core/state/test_upstream_session.py::test_the_pause_doubles_up_to_its_bound",
    "crash_loop_failures": (
        "core/engine/test_supervision.py::test_reconnecting_clients_do_not_restart_a_crashing_server_at_once"
    ),
    "crash_loop_pause_s": (
        "core/engine/test_supervision.py::test_reconnecting_clients_do_not_restart_a_crashing_server_at_once"
    ),
    "crash_loop_pause_max_s": "core/upstream/test_health.py::test_the_pause_stays_a_number_whatever_has_failed",
    "shared_linger_s": (
        "core/engine/test_dialogues_shared.py::test_a_process_lingers_after_its_last_client_and_is_used_again"
    ),
    "spare_idle_s": "core/upstream/test_warm_pool.py::test_a_spare_process_is_stopped_that_no_session_needs",
    "cancelled_request_ttl_s": "core/engine/test_dialogues_shared.py::test_a_question_may_belong_to_a_cancelled_call",
    "stop_grace_s": (
        "transports/stdio/test_server_process.py::test_a_child_that_talks_while_it_is_stopped_does_not_block"
    ),
    "stderr_ring_lines": "transports/stdio/test_server_process.py::test_stderr_is_bounded",
    "decision_timeout_s": "core/engine/test_dialogues_decisions.py::test_a_request_is_denied_when_nobody_decides",
    "storage_timeout_s": "core/engine/test_limits.py::test_storage_timeout_counts_as_a_failure",
    "upload_size_max_bytes": (
        "core/engine/test_limits.py::test_an_upload_whose_length_says_that_it_cannot_fit_is_refused_unread"
    ),
    "upload_files_max": "core/engine/test_limits.py::test_the_bounds_of_an_upload_are_ordered_with_it",
    "uploads_per_session_max": "core/engine/test_limits.py::test_uploads_per_session_max_counts_files_of_no_size_too",
    "upload_part_max_bytes": "core/engine/test_dialogues_put_file.py::test_what_is_no_part_of_a_file_is_refused",
    "upload_ttl_s": "core/engine/test_limits.py::test_upload_ttl_removes_what_is_not_used_and_each_use_starts_it_anew",
    "upload_link_ttl_s": "core/engine/test_files.py::test_an_expired_link_is_refused",
    "upload_draft_ttl_s": "core/files/transfer/test_resumable.py::test_a_resumable_upload_expires_unless_it_grows",
    "upload_draft_max_s": (
        "core/files/transfer/test_resumable.py::test_a_resumable_upload_that_takes_too_long_is_stopped"
    ),
    "upload_drafts_per_session_max": (
        "core/files/transfer/test_resumable_refused.py::test_the_number_of_resumable_uploads_is_bounded"
    ),
    "upload_drafts_max": (
        "core/files/transfer/test_resumable.py::test_resumable_uploads_are_bounded_and_finished_ones_make_room"
    ),
    "artifact_size_max_bytes": "core/engine/test_files_hostile.py::test_a_file_that_is_too_large_is_reported_once",
    "artifact_ttl_s": (
        "core/engine/test_limits.py::test_artifact_ttl_removes_artifacts_at_their_deadline_and_frees_their_room"
    ),
    "artifacts_per_session_max": (
        "core/engine/test_limits.py::test_artifacts_per_session_max_keeps_the_first_and_says_so_of_the_rest"
    ),
    "files_known_max": "core/engine/test_files_hostile.py::test_a_server_that_makes_fifty_thousand_files",
    "files_awaited_max": "core/engine/test_files_races.py::test_no_more_files_are_awaited_than_the_limit_says",
    "arguments_read_max": "core/engine/test_limits.py::test_arguments_read_max_bounds_the_paths_that_are_looked_at",
    "artifacts_per_call_max": (
        "core/engine/test_limits.py::test_artifacts_per_call_max_bounds_what_one_result_brings_in"
    ),
    "artifact_page_max": "core/files/test_resources.py::test_a_page_is_the_last_when_nothing_is_left",
    "inline_size_max_bytes": "core/engine/test_limits.py::test_inline_size_max_names_the_link_instead_of_the_content",
    "session_storage_max_bytes": (
        "core/engine/test_limits.py::test_storage_max_bounds_all_sessions_and_session_storage_max_each"
    ),
    "storage_max_bytes": (
        "core/engine/test_limits.py::test_storage_max_bounds_all_sessions_and_session_storage_max_each"
    ),
    "stored_files_max": "core/engine/test_limits.py::test_stored_files_max_counts_those_of_all_sessions",
    "tombstones_max": "core/files/store/test_store.py::test_the_oldest_of_too_many_tombstones_is_forgotten",
    "tombstone_ttl_s": "core/files/store/test_store.py::test_the_reason_says_how_long_ago_a_file_went",
    "drain_s": "transports/stdio/test_client.py::test_calls_that_never_end_are_given_up",
    "core/jsonrpc/bounds.py::DEPTH_SAFE": "core/jsonrpc/test_bounds_depth.py::test_too_deep_nesting_is_refused",
    "core/jsonrpc/bounds.py::MEMBERS_MAX": "core/jsonrpc/test_bounds.py::test_an_object_of_too_many_members_is_refused",
    "core/jsonrpc/bounds.py::ELEMENTS_MAX": (
        "core/jsonrpc/test_bounds.py::test_an_array_of_too_many_elements_is_refused"
    ),
    "core/jsonrpc/bounds.py::LONE_SURROGATES_MAX": (
        "core/jsonrpc/test_bounds.py::test_too_many_lone_surrogates_are_refused"
    ),
    "core/jsonrpc/envelope.py::ID_MAX_BYTES": (
        "core/engine/test_memory.py::test_a_value_that_is_kept_with_a_request_has_a_longest_length"
    ),
    "core/jsonrpc/envelope.py::METHOD_MAX_CHARS": (
        "core/engine/test_memory.py::test_a_value_that_is_kept_with_a_request_has_a_longest_length"
    ),
    "core/bridge/request_meta.py::CLIENT_INFO_SIZE_MAX_BYTES": (
        "core/bridge/test_request_meta_read.py::test_the_description_of_a_client_has_a_bound"
    ),
    "core/bridge/capabilities.py::CAPABILITIES_SIZE_MAX_BYTES": (
        "core/bridge/test_capabilities_kept.py::test_the_bounds_themselves_are_accepted"
    ),
    "core/bridge/capabilities.py::CAPABILITIES_DEPTH_MAX": (
        "core/bridge/test_capabilities_kept.py::test_the_bounds_themselves_are_accepted"
    ),
    "core/bridge/output_schema.py::DEPTH_MAX": "core/bridge/test_output_schema.py::test_bounds",
    "core/bridge/request_state.py::TOKEN_MAX": (
        "core/bridge/test_request_state_format.py::test_a_token_has_a_longest_size"
    ),
    "core/endpoints/known_clients.py::KNOWN_CLIENTS_MAX": (
        "core/engine/test_fixed_limits.py::test_only_so_many_clients_are_known"
    ),
    "core/state/answered_tokens.py::ANSWERED_TOKENS_MAX": (
        "core/engine/test_dialogues_one_era.py::test_progress_after_the_answer_passes_under_the_clients_token"
    ),
    "core/downstream/sessions.py::REFUSED_MAX": (
        "core/engine/test_http_rules.py::test_each_request_of_a_batch_that_is_refused_on_a_pipe_is_answered"
    ),
    "core/state/shared_process.py::CANCELLED_MAX": (
        "core/state/test_shared_process.py::test_so_many_cancelled_requests_are_remembered"
    ),
    "core/input_required/url_elicitation.py::DONE_MAX": (
        "core/engine/test_fixed_limits.py::test_only_so_many_visits_that_are_over_are_remembered"
    ),
    "core/input_required/url_elicitation.py::PAGES_MAX": (
        "core/engine/test_fixed_limits.py::test_a_refusal_that_names_too_many_pages_is_an_error"
    ),
    "core/tasks/upstream_tasks.py::FETCHES_MAX": (
        "core/engine/test_fixed_limits.py::test_the_results_of_so_many_tasks_are_waited_for"
    ),
    "core/tasks/upstream_tasks.py::ORPHANS_MAX": (
        "core/tasks/test_upstream_tasks_orphans.py::test_the_oldest_orphans_are_forgotten"
    ),
    "core/wire/headers.py::SESSION_ID_MAX_CHARS": "core/wire/http/test_routes.py::test_session_ids_are_visible_ascii",
    "core/wire/http/codings.py::CODINGS_MAX": "core/wire/http/test_codings.py::test_a_body_has_two_codings_at_most",
    "core/wire/http/codings.py::SLICE_BYTES": "core/wire/http/test_codings.py::test_a_slice_is_decoded_at_a_time",
    "core/wire/http/codings.py::ANY_RATIO_MAX_BYTES": (
        "core/wire/http/test_codings.py::test_a_large_body_may_hold_so_many_times_its_size"
    ),
    "transports/http2/client.py::WINDOW_BYTES": (
        "transports/http2/test_client.py::test_a_server_sends_no_more_than_a_window_ahead"
    ),
    "transports/http2/client.py::FRAME_SIZE_MAX_BYTES": "transports/http2/test_client.py::test_a_frame_is_bounded",
    "transports/http2/client.py::IDLE_FRAMES_MAX": (
        "transports/http2/test_client.py::test_frames_that_bring_nothing_are_bounded"
    ),
    "transports/http2/client.py::ANSWERS_MAX_BYTES": (
        "transports/http2/test_client.py::test_answers_that_wait_are_bounded"
    ),
    "transports/base/decompressors.py::BR_WINDOW_MAX_BYTES": (
        "core/wire/http/test_codings.py::test_the_largest_window_of_br_is_read_and_counted"
    ),
    "transports/base/decompressors.py::ZSTD_WINDOW_BITS_MAX": (
        "core/wire/http/test_codings.py::test_no_frame_of_zstd_may_want_a_larger_window"
    ),
    "core/wire/http/error_responses.py::CANDIDATES_MAX": (
        "core/wire/http/test_error_responses.py::test_so_many_ids_are_compared_with_an_unknown_path"
    ),
    "core/wire/http/request_target.py::QUERY_FIELDS_MAX": (
        "core/wire/http/test_routes.py::test_a_query_has_so_many_fields"
    ),
    "core/wire/http/request.py::EVENT_ID_MAX_BYTES": (
        "core/wire/http/test_response.py::test_an_event_id_too_long_for_a_header_is_not_kept"
    ),
    "core/wire/http/cors.py::NAMES_MAX": (
        "core/wire/http/test_cors.py::test_requested_headers_are_allowed_if_they_are_names"
    ),
    "core/wire/http/cookies.py::COOKIE_MAX_BYTES": "core/wire/http/test_cookies.py::test_the_longest_cookie",
    "core/wire/http/redirects.py::TARGET_MAX_BYTES": "core/wire/http/test_redirects.py::test_the_longest_target",
    "core/wire/http/response.py::REFUSAL_BODY_MAX_BYTES": (
        "core/wire/http/test_response.py::test_64_kib_of_a_refusal_are_kept"
    ),
    "core/wire/http/response.py::CHALLENGE_MAX_BYTES": (
        "core/wire/http/test_response.py::test_a_challenge_is_kept_as_it_is_or_not_at_all"
    ),
    "core/wire/http/legacy_sse_client.py::ENDPOINT_MAX_BYTES": (
        "core/wire/http/test_legacy_sse_client.py::test_the_endpoint_is_resolved_against_the_stream"
    ),
    "core/wire/http/endpoint_rewrite.py::HELD_MAX_BYTES": (
        "core/wire/http/test_endpoint_rewrite.py::test_a_large_event_is_not_held"
    ),
    "core/wire/sse.py::LINES_MAX": "core/wire/test_sse.py::test_an_event_of_too_many_lines_is_dropped_and_skipped",
    "core/wire/sse.py::RETRY_MAX_MS": "core/wire/test_sse.py::test_retry_is_a_number_of_any_length",
    "core/access/revocations.py::REVOCATIONS_MAX": (
        "core/access/test_revocations.py::test_at_the_most_revocations_the_oldest_is_widened_to_everybody"
    ),
    "core/access/gate.py::PRINCIPALS_MAX": "core/access/test_gate.py::test_the_principal_seen_first_is_forgotten_first",
    "core/access/client_certificates.py::NAME_MAX_CHARS": (
        "core/access/test_client_certificates.py::test_an_unusable_name_is_refused"
    ),
    "transports/tls/asyncio_transport.py::ANSWERS_MAX_BYTES": (
        "transports/tls/test_listener.py::test_a_client_that_asks_for_answers_and_reads_none_is_closed"
    ),
    "transports/http_server/shared.py::DENIALS_MAX": "app/gateway/test_access.py::test_denials_do_not_fill_the_log",
    "transports/http_server/shared.py::PATH_MAX_CHARS": (
        "app/gateway/test_access.py::test_denials_are_in_the_audit_log_without_secrets"
    ),
    "transports/http_server/framing.py::HELD_MAX_BYTES": (
        "transports/http_server/test_server.py::test_held_bytes_are_bounded"
    ),
    "transports/http_server/framing.py::SKIP_MAX_BYTES": (
        "transports/http_server/test_server.py::test_an_oversize_message_is_refused_before_it_is_reported"
    ),
    "transports/http_server/server.py::TURNED_AWAY_MAX": (
        "transports/http_server/test_server.py::test_connections_that_cannot_even_get_a_503_are_not_accepted"
    ),
    "core/wire/http/forwarded_for.py::PROXIES_MAX": (
        "core/wire/http/test_forwarded_for.py::test_so_many_entries_are_looked_at"
    ),
    "core/wire/http/forwarded_for.py::ENTRY_MAX_BYTES": (
        "core/wire/http/test_forwarded_for.py::test_what_an_entry_says"
    ),
    "core/wire/http/hop.py::TIME_MAX_S": "core/wire/http/test_hop.py::test_a_header_counts_for_a_while",
    "core/wire/http/hop.py::HOP_MAX_BYTES": (
        "transports/http_server/test_replicas.py::test_a_caller_with_too_many_groups_is_not_passed_on"
    ),
    "core/wire/http/reverse_proxy_exchange.py::INTERIM_MAX": (
        "transports/reverse_proxy/test_forwarder.py::test_what_servers_say_before_their_response_ends_here"
    ),
    "core/wire/http/ranges.py::PARTS_MAX": "core/wire/http/test_ranges.py::test_too_many_ranges_are_ignored",
    "core/wire/http/ranges.py::HEADER_MAX_BYTES": "core/wire/http/test_ranges.py::test_too_many_ranges_are_ignored",
    "core/wire/http/tus.py::METADATA_MAX_BYTES": "core/wire/http/test_tus.py::test_malformed_metadata",
    "core/wire/http/tus.py::METADATA_PAIRS_MAX": "core/wire/http/test_tus.py::test_malformed_metadata",
    "core/wire/http/upload.py::FILENAME_MAX_BYTES": (
        "core/wire/http/test_upload.py::test_a_name_in_a_header_has_its_bound"
    ),
    "core/files/transfer/resumable.py::WAITING_MAX": (
        "core/files/transfer/test_resumable_refused.py::test_so_many_requests_wait_behind_the_current_one"
    ),
    "core/files/store/links.py::UPLOAD_GRANT_MAX": (
        "core/files/store/test_links.py::test_a_grant_that_is_too_long_is_refused"
    ),
    "core/tasks/foreign_tasks.py::MIRRORS_MAX": (
        "core/tasks/test_foreign_tasks.py::test_tasks_of_other_replicas_are_bounded"
    ),
    "core/tasks/store.py::LOOKS_MAX": (
        "core/tasks/test_foreign_tasks.py::test_a_record_that_is_changed_again_and_again_is_saved_later"
    ),
    "core/tasks/foreign_tasks.py::TRIES_MAX": (
        "core/tasks/test_foreign_tasks.py::test_a_task_that_others_keep_changing_is_refused_in_the_end"
    ),
    "core/files/foreign_files.py::FOREIGN_FILES_MAX": (
        "core/files/test_foreign_files.py::test_so_many_files_are_looked_for_in_one_request"
    ),
    "core/state/shared_limits.py::SHARES_MAX": (
        "core/state/test_shared_limits.py::test_a_record_has_a_bounded_number_of_shares"
    ),
    "core/state/shared_limits.py::CONFLICTS_MAX": (
        "core/state/test_shared_limits.py::test_a_change_that_others_keep_overtaking_fails"
    ),
    "core/files/store/store.py::LOOKS_MAX": (
        "core/files/test_files_of_replicas.py::test_so_many_files_are_looked_at_for_one"
    ),
    "core/files/transfer/admission.py::USED_LINKS_MAX": (
        "core/files/transfer/test_admission.py::test_the_oldest_used_link_is_forgotten"
    ),
    "core/files/store/filenames.py::NAME_MAX_BYTES": (
        "core/files/store/test_filenames.py::test_long_names_are_cut_between_characters_and_keep_their_suffix"
    ),
    "core/files/calls/arguments.py::REFERENCES_MAX": (
        "core/files/calls/test_arguments.py::test_the_number_of_handles_is_bounded"
    ),
    "core/files/calls/mentions.py::DEPTH_MAX": "core/files/calls/test_mentions.py::test_depth_is_bounded",
    "core/files/calls/mentions.py::WORK_SPARE_BYTES": (
        "core/files/calls/test_mentions.py::test_large_values_many_levels_deep_are_not_read_again_for_each_level"
    ),
    "core/jsonrpc/bounds.py::VALUES_MAX": (
        "core/files/calls/test_path_rewriter.py::test_a_value_of_too_many_parts_stays_as_it_is"
    ),
    "core/files/calls/mentions.py::LAYERS_MAX": (
        "core/files/calls/test_mentions.py::test_paths_are_escaped_for_every_layer_of_json"
    ),
    "core/files/calls/inputs.py::LEARNED_MAX": (
        "core/engine/test_files_refused.py::test_the_oldest_known_uri_argument_is_forgotten_first"
    ),
    "core/files/calls/absolute_names.py::LEARNED_MAX": (
        "core/files/calls/test_absolute_names.py::test_at_the_bound_the_oldest_is_forgotten"
    ),
    "core/files/calls/absolute_names.py::DEPTH_MAX": (
        "core/files/calls/test_absolute_names.py::test_a_refusal_of_another_kind_passes"
    ),
    "core/files/calls/absolute_names.py::NAME_MAX_CHARS": (
        "core/files/calls/test_absolute_names.py::test_a_refusal_of_another_kind_passes"
    ),
    "core/files/calls/absolute_names.py::REFUSAL_MAX_CHARS": (
        "core/files/calls/test_absolute_names.py::test_a_refusal_of_another_kind_passes"
    ),
    "core/files/calls/absolute_names.py::ENTRIES_MAX": (
        "core/files/calls/test_absolute_names.py::test_only_so_many_arguments_are_looked_at"
    ),
    "core/files/store/handles.py::NEW_FILE_PARTS_MAX": (
        "core/files/calls/test_new_files.py::test_a_name_stays_below_the_output_folder"
    ),
    "core/files/calls/tool_schemas.py::NODES_MAX": (
        "core/files/calls/test_tool_hints.py::test_large_schemas_are_read_in_part"
    ),
    "core/files/calls/schema_strings.py::STEPS_MAX": (
        "core/files/calls/test_schema_strings.py::test_the_number_of_examined_subschemas_is_bounded"
    ),
    "core/files/calls/claims.py::GUESSED_MAX_BYTES": (
        "core/files/calls/test_claims.py::test_only_results_up_to_a_size_are_searched_without_an_adapter"
    ),
    "core/files/calls/claims.py::STRINGS_MAX": (
        "core/files/calls/test_claims.py::test_only_so_many_strings_are_looked_at"
    ),
    "core/files/calls/paths_in_text.py::CANDIDATES_MAX": (
        "core/files/calls/test_paths_in_text.py::test_every_match_of_every_pattern_is_tried_up_to_a_bound"
    ),
    "core/files/calls/paths_in_text.py::TEXT_MAX_CHARS": (
        "core/files/calls/test_paths_in_text.py::test_long_text_is_searched_at_both_ends"
    ),
    "core/files/calls/path_rewriter.py::WORK_MAX": (
        "core/files/calls/test_path_rewriter.py::test_the_work_on_one_result_is_bounded"
    ),
    "core/logins/challenges.py::VALUE_MAX_CHARS": (
        "core/logins/test_challenges.py::test_at_the_longest_value_nothing_is_read"
    ),
    "core/logins/challenges.py::PARAMETERS_MAX": (
        "core/logins/test_challenges.py::test_at_the_most_parameters_nothing_is_read"
    ),
    "core/logins/metadata.py::ISSUERS_MAX": (
        "core/logins/test_metadata.py::test_so_many_authorization_servers_and_scopes_are_read"
    ),
    "core/logins/metadata.py::SCOPES_MAX": (
        "core/logins/test_metadata.py::test_so_many_authorization_servers_and_scopes_are_read"
    ),
    "core/logins/login.py::RETURNS_MAX": (
        "core/logins/test_login.py::test_too_many_visits_with_another_state_end_the_login"
    ),
    "core/logins/login.py::QUERY_MAX_CHARS": (
        "core/logins/test_login.py::test_a_query_that_is_too_long_counts_as_another_state"
    ),
    "core/logins/device.py::INTERVAL_MAX_S": "core/logins/test_device.py::test_the_pause_is_bounded",
    "core/logins/device.py::EXPIRES_MAX_S": (
        "core/logins/test_device.py::test_a_code_that_nobody_types_ends_the_login"
    ),
    "core/logins/credentials.py::REJECTIONS_MAX": (
        "core/logins/test_credentials.py::test_a_server_that_takes_no_token_is_not_asked_for_ever"
    ),
    "core/logins/step_up.py::ATTEMPTS_MAX": "core/logins/test_step_up.py::test_an_operation_has_two_attempts",
    "core/logins/step_up.py::OPERATIONS_MAX": (
        "core/logins/test_step_up.py::test_at_the_most_operations_the_oldest_is_forgotten"
    ),
    "app/logins/callback.py::HEAD_MAX_BYTES": (
        "app/logins/test_callback.py::test_a_head_that_is_too_long_is_not_answered"
    ),
    "app/logins/callback.py::WAITING_MAX": "app/logins/test_callback.py::test_so_many_visits_wait_to_be_judged",
    "core/profiles/aliases.py::ALIAS_MAX_CHARS": (
        "core/profiles/test_aliases.py::test_a_text_that_is_no_alias_is_refused"
    ),
    "core/profiles/catalogues.py::CATALOGUES_MAX": "core/profiles/test_catalogues.py::test_indexes_are_bounded",
    "core/profiles/catalogues.py::TOOLS_MAX": "core/profiles/test_catalogues.py::test_tools_of_an_index_are_bounded",
    "core/profiles/names.py::CATALOGUE_MAX": "core/profiles/test_names.py::test_a_catalogue_is_bounded",
    "core/profiles/names.py::GUESS_MAX_CHARS": (
        "core/profiles/test_names.py::test_a8_candidates_are_found_for_names_of_some_length_only"
    ),
    "core/profiles/rewriting.py::CHAIN_MAX": (
        "core/profiles/test_corner_cases.py::test_a9_the_list_of_a_profile_that_contains_itself_ends"
    ),
    "core/profiles/plain_calls.py::ROUTES_MAX": (
        "core/profiles/test_plain_calls.py::test_no_more_is_kept_of_calls_than_routes"
    ),
    "core/base/telemetry.py::NAME_MAX_CHARS": "core/state/test_telemetry.py::test_names_are_cut",
    "core/state/telemetry.py::ID_MAX_BYTES": ("core/state/test_telemetry.py::test_names_are_cut"),
    "app/telemetry/audit.py::CLOSE_TIMEOUT_S": (
        "app/telemetry/test_audit.py::test_the_end_does_not_wait_for_a_disk_that_hangs"
    ),
    "app/telemetry/audit.py::OPEN_MAX": "app/telemetry/test_audit.py::test_requests_that_never_end_are_forgotten",
    "app/telemetry/audit.py::QUEUE_MAX_BYTES": "app/telemetry/test_audit.py::test_records_that_wait_are_bounded",
    "app/telemetry/audit_file.py::TORN_MAX_BYTES": (
        "app/telemetry/test_audit_file.py::test_another_text_stays_and_ends_its_line"
    ),
    "app/telemetry/audit_records.py::ARGUMENTS_MAX": (
        "app/telemetry/test_audit_records.py::test_arguments_are_bounded"
    ),
    "app/telemetry/audit_records.py::ARGUMENTS_MAX_BYTES": (
        "app/telemetry/test_audit_records.py::test_arguments_are_bounded"
    ),
    "app/telemetry/audit_records.py::READ_MAX_BYTES": (
        "app/telemetry/test_audit_records.py::test_arguments_are_bounded"
    ),
    "app/telemetry/audit_records.py::TEXT_MAX_CHARS": "app/telemetry/test_audit_records.py::test_names_are_bounded",
    "app/telemetry/syslog.py::HOST_MAX_CHARS": "app/telemetry/test_syslog.py::test_the_name_of_the_host_is_bounded",
    "app/telemetry/syslog.py::TIMEOUT_S": (
        "app/telemetry/test_syslog.py::test_a_server_that_reads_nothing_holds_up_a_write_for_a_while_only"
    ),
    "app/watch/wire_log.py::WAITING_MAX": ("app/watch/test_wire_log.py::test_what_nobody_reads_is_counted_only"),
    "app/watch/wire_log.py::WAITING_MAX_BYTES": ("app/watch/test_wire_log.py::test_what_nobody_reads_is_counted_only"),
    "app/watch/wire_log.py::SHOWN_MAX_BYTES": (
        "app/watch/test_wire_log.py::test_a_message_in_parts_is_kept_up_to_a_limit"
    ),
    "app/watch/records.py::RECORDS_MAX": ("app/watch/test_records.py::test_the_oldest_records_are_dropped"),
    "app/watch/records.py::MESSAGES_MAX": ("app/watch/test_records.py::test_the_oldest_records_are_dropped"),
    "app/watch/records.py::BODIES_MAX_BYTES": ("app/watch/test_records.py::test_the_oldest_records_are_dropped"),
    "app/watch/digest.py::KNOWN_MAX": ("app/watch/test_records.py::test_tables_and_texts_are_bounded"),
    "app/watch/digest.py::ENDED_SESSIONS_MAX": ("app/watch/test_records.py::test_tables_and_texts_are_bounded"),
    "app/watch/digest.py::ID_MAX_CHARS": ("app/watch/test_records.py::test_tables_and_texts_are_bounded"),
    "app/watch/digest.py::TEXT_MAX_CHARS": ("app/watch/test_records.py::test_tables_and_texts_are_bounded"),
    "app/watch/pages.py::EVENTS_MAX": ("app/watch/test_pages.py::test_records_come_in_portions"),
    "app/telemetry/counters.py::TOOLS_MAX": (
        "app/telemetry/test_counters.py::test_a_server_has_so_many_tools_that_are_counted_apart"
    ),
    "app/telemetry/counters.py::WAITING_MAX": (
        "app/telemetry/test_counters.py::test_events_wait_to_be_counted_but_not_many"
    ),
    "core/base/telemetry.py::TOOLS_MAX": "core/state/test_telemetry.py::test_the_names_of_listed_tools_are_emitted",
    "app/telemetry/span_export.py::FLUSH_MAX_S": (
        "app/telemetry/test_span_export.py::test_a_collector_that_never_answers_holds_nothing_up"
    ),
    "app/telemetry/span_export.py::QUEUE_MAX_BYTES": (
        "app/telemetry/test_span_export.py::test_a_collector_that_never_answers_holds_nothing_up"
    ),
    "app/telemetry/spans.py::ARGUMENTS_MAX_CHARS": "app/telemetry/test_spans.py::test_large_arguments_are_cut",
    "app/telemetry/spans.py::KEYS_MAX": "app/telemetry/test_spans.py::test_large_arguments_are_cut",
    "app/telemetry/spans.py::OPEN_MAX": ("app/telemetry/test_spans.py::test_no_more_spans_are_open_than_the_limit"),
    "core/state/exchange.py::TRACE_LINKS_MAX": (
        "core/engine/test_tracing.py::test_a_request_has_no_more_links_than_the_limit"
    ),
    "core/tracing/baggage.py::BAGGAGE_MAX_CHARS": (
        "core/tracing/test_context.py::test_baggage_that_is_too_long_is_dropped"
    ),
    "core/tracing/context.py::STATE_MAX_CHARS": (
        "core/tracing/test_context.py::test_a_state_that_is_too_long_is_dropped"
    ),
    "core/tracing/context.py::STATE_MAX_MEMBERS": (
        "core/tracing/test_context.py::test_a_state_that_is_too_long_is_dropped"
    ),
    "core/state/telemetry.py::LOOKED_AT_MAX_BYTES": (
        "core/state/test_telemetry.py::test_a_large_result_is_not_searched"
    ),
    "core/profiles/rewriting.py::CANDIDATES_MAX": (
        "core/profiles/test_rewriting.py::test_a8_candidates_in_an_error_are_bounded"
    ),
    "core/profiles/instructions.py::SERVER_MAX_CHARS": (
        "core/profiles/test_instructions.py::test_each_server_has_a_section_that_is_cut"
    ),
    "core/profiles/instructions.py::ALL_MAX_CHARS": (
        "core/profiles/test_instructions.py::test_the_last_servers_are_left_out_where_there_is_no_room"
    ),
    "core/profiles/instructions.py::PRINCIPALS_MAX": (
        "core/profiles/test_instructions.py::test_instructions_are_of_one_principal_and_the_first_are_dropped"
    ),
    "core/caching/learned.py::LEARNED_MAX": (
        "core/caching/test_learned.py::test_the_answer_that_was_used_least_lately_makes_room"
    ),
    "core/caching/learned.py::LEARNED_MAX_BYTES": (
        "core/caching/test_learned.py::test_all_answers_together_have_so_many_bytes"
    ),
    "core/caching/learned.py::ANSWER_MAX_BYTES": (
        "core/caching/test_learned.py::test_an_answer_that_is_too_large_is_not_kept_and_replaces_the_earlier_one"
    ),
    "core/profiles/snapshots.py::SNAPSHOTS_MAX": "core/profiles/test_snapshots.py::test_stored_lists_are_bounded",
    "core/profiles/snapshots.py::SNAPSHOT_MAX_BYTES": "core/profiles/test_snapshots.py::test_a_long_list_is_not_stored",
    "core/profiles/fetches.py::PAGES_MAX": "core/profiles/test_lists.py::test_pages_of_a_server_are_bounded",
    "core/profiles/fetches.py::LIST_MAX_BYTES": "core/profiles/test_lists.py::test_bytes_of_a_server_are_bounded",
    "core/profiles/fetches.py::LIST_MAX_ENTRIES": "core/profiles/test_lists.py::test_entries_of_a_server_are_bounded",
    "core/profiles/pages.py::PAGE_MAX_BYTES": "core/profiles/test_lists.py::test_clients_get_large_lists_in_pages",
    "core/profiles/lists.py::KINDS_MAX": "core/profiles/test_lists.py::test_kinds_of_clients_are_bounded",
    "app/logins/callers.py::CALLERS_MAX": "app/logins/test_connect_pages.py::test_callers_are_bounded",
    "app/logins/visits.py::VISITS_MAX": "app/logins/test_connect_pages.py::test_visits_are_bounded",
    "app/logins/unattended.py::SUBJECT_MAX_BYTES": (
        "app/logins/test_unattended.py::test_a_file_without_a_token_is_named"
    ),
    "app/logins/transfer.py::PASSPHRASE_MIN_CHARS": (
        "app/logins/test_transfer.py::test_a_passphrase_that_is_too_short"
    ),
    "app/logins/transfer.py::EXPORT_MAX_BYTES": "app/logins/test_transfer.py::test_a_file_that_is_too_large",
    "app/logins/interface.py::KEPT_MAX": "app/logins/test_store.py::test_so_many_unreadable_records_are_kept",
    "core/replicas/leases.py::REPLICAS_MAX": "core/replicas/test_leases.py::test_a_store_has_so_many_replicas",
    "core/replicas/records.py::ADDRESS_MAX_CHARS": (
        "core/replicas/test_leases.py::test_records_that_cannot_be_read_are_kept"
    ),
    "core/search/answers.py::DEFINITIONS_MAX": (
        "core/search/test_answers.py::test_hits_are_shown_with_their_definition_and_others_in_a_line"
    ),
    "core/search/answers.py::DEFINITIONS_MAX_BYTES": (
        "core/search/test_answers.py::test_definitions_take_so_many_bytes_together"
    ),
    "core/search/answers.py::DEFINITION_MAX_BYTES": (
        "core/search/test_answers.py::test_the_first_definition_may_be_larger"
    ),
    "core/search/answers.py::LINE_MAX_CHARS": "core/search/test_answers.py::test_lines_are_cut_off",
    "core/search/documents.py::PARAMETERS_MAX": "core/search/test_index.py::test_so_many_parameters_are_indexed",
    "core/search/documents.py::PARAMETER_MAX_CHARS": "core/search/test_index.py::test_texts_are_indexed_to_their_limit",
    "core/search/documents.py::TERMS_MAX": "core/search/test_index.py::test_so_many_stems_of_a_tool_are_kept",
    "core/search/documents.py::TEXT_MAX_CHARS": "core/search/test_index.py::test_texts_are_indexed_to_their_limit",
    "core/search/index.py::CONCEPTS_MAX": "core/search/test_index.py::test_so_many_words_are_searched_for",
    "core/search/index.py::HITS_MAX": "core/search/test_index.py::test_a_page_has_so_many_hits",
    "core/search/index.py::NEIGHBOURS_MAX": (
        "core/search/test_index.py::test_so_many_known_words_are_compared_with_an_unknown_one"
    ),
    "core/search/index.py::QUERY_MAX_CHARS": "core/search/test_index.py::test_a_query_is_read_to_its_limit",
    "core/search/index.py::TOOLS_PER_SERVER_MAX": (
        "core/search/test_index.py::test_a_server_has_so_many_tools_and_takes_none_of_others"
    ),
    "core/search/index.py::WORK_MAX": "core/search/test_index.py::test_so_many_entries_are_looked_at",
    "core/search/words.py::WORD_MAX_CHARS": "core/search/test_words.py::test_words_are_cut_off_at_their_limit",
    "core/access/gate.py::NAME_MAX_BYTES": ("core/access/test_gate.py::test_an_unusable_header_of_a_proxy_is_refused"),
    "core/access/json_web_tokens.py::TOKEN_MAX_CHARS": "core/access/test_json_web_tokens.py::test_a_token_is_bounded",
    "core/access/json_web_tokens.py::HEADER_MAX_BYTES": "core/access/test_json_web_tokens.py::test_a_header_is_bounded",
    "core/access/json_web_tokens.py::NAME_MAX_CHARS": (
        "core/access/test_json_web_tokens.py::test_the_name_of_a_key_is_bounded"
    ),
    "core/access/claims.py::VALUES_MAX": (
        "core/access/test_issuers.py::test_scopes_and_groups_that_cannot_be_read_are_refused"
    ),
    "core/access/public_keys.py::DOCUMENT_MAX_BYTES": (
        "core/access/test_public_keys.py::test_a_key_set_is_bounded_in_bytes"
    ),
    "core/access/public_keys.py::KEYS_MAX": "core/access/test_public_keys.py::test_a_key_set_is_bounded_in_keys",
    "core/access/key_sets.py::UNKNOWN_KEYS_MAX": (
        "core/access/test_issuers.py::test_tokens_that_wait_for_unknown_keys_are_bounded"
    ),
    "core/access/key_sets.py::NAMELESS_KEYS_MAX": (
        "core/access/test_issuers.py::test_keys_that_are_tried_for_a_token_that_names_none_are_bounded"
    ),
    "core/access/issuers.py::KEPT_MAX": "core/access/test_issuers.py::test_tokens_that_are_remembered_are_bounded",
    "core/access/issuers.py::ASKED_MAX": (
        "core/access/test_introspection.py::test_tokens_that_an_issuer_is_asked_about_are_bounded"
    ),
    "core/upstream/health.py::TOOLS_COUNTED_MAX": (
        "core/upstream/test_health.py::test_refused_calls_are_counted_by_a_bounded_number_of_names"
    ),
    "core/upstream/health.py::TOOL_MAX_CHARS": (
        "core/upstream/test_health.py::test_refused_calls_are_counted_by_a_bounded_number_of_names"
    ),
    "app/disk/walk.py::DEPTH_MAX": "app/disk/test_survey.py::test_depth_is_bounded",
    "app/disk/walk.py::PATH_SIZE_MAX": "app/disk/test_survey.py::test_paths_too_long_to_be_opened_are_passed_over",
    "app/disk/permissions.py::PRIVATE_ENTRIES_MAX": (
        "app/disk/test_workspaces.py::test_a_private_file_has_no_public_name"
    ),
    "app/terminal/filter.py::KEY_MAX_CHARS": "app/terminal/test_filter.py::test_a_longer_name_is_a_text",
    "app/terminal/lines.py::KNOWN_MAX": "app/terminal/test_tail.py::test_what_is_known_is_bounded",
    "app/terminal/figures.py::TIMES_MAX": "app/terminal/test_top.py::test_figures_are_bounded",
    "app/terminal/figures.py::SERVERS_MAX": "app/terminal/test_top.py::test_figures_are_bounded",
    "app/terminal/figures.py::OPEN_MAX": "app/terminal/test_top.py::test_figures_are_bounded",
    "app/terminal/top.py::PORTIONS_MAX": "app/terminal/test_top.py::test_a_look_reads_so_many_portions",
}
