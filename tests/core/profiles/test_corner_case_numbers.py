"""The corner cases of one endpoint for many servers: what has to hold, and the tests that show it.

A name of a test is that of a function in a file beside this one, or in the path before it, below `tests`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from each_row import each_row

TESTS: Final = Path(__file__).parents[2]
CORNER: Final = "test_corner_cases.py::"
DIALOGUES: Final = "test_dialogues_profiles.py::"
DEFINITIONS: Final = "test_profile_definitions.py::"
FAILURES: Final = "test_profile_failures.py::"
LISTENS: Final = "test_dialogues_profile_listens.py::"
NAMES: Final = "test_names.py::"
REAL: Final = "real/test_profiles.py::"
REWRITING: Final = "test_rewriting.py::"
ROUTING: Final = "test_profile_routing.py::"
SEARCHES: Final = "test_profile_search.py::"
URIS: Final = "test_uris.py::"
ANY_NAME: Final = f"{CORNER}test_a_tool_of_any_name_is_called_by_the_name_that_is_listed"

CASES: Final[dict[str, tuple[str, ...]]] = {
    # Names
    "A1 ids a and a_b, with tools b_c and c: two tools": (f"{NAMES}test_a1_the_separator_is_in_no_alias", ANY_NAME),
    "A2 a name with the separator": (f"{NAMES}test_a2_a_name_may_have_the_separator", ANY_NAME),
    "A3 long names, two of which begin alike": (
        f"{NAMES}test_a3_a_long_name_keeps_its_head_and_tail",
        f"{NAMES}test_a3_names_that_begin_alike_stay_apart",
        ANY_NAME,
    ),
    "A4 names of other characters, two of which are equal without those": (
        f"{NAMES}test_a4_other_characters_become_hyphens",
        f"{NAMES}test_a4_names_that_are_equal_after_cleaning_stay_apart",
        ANY_NAME,
    ),
    "A5 names that differ in case alone": (f"{CORNER}test_names_that_differ_in_case_only_are_two",),
    "A6 a tool with the name of one of the profile's own": (
        f"{NAMES}test_a6_names_of_the_profile_itself_are_given_to_no_server",
        "test_dialogues_profile_search.py::test_a_call_of_a_shown_name_is_the_direct_call",
    ),
    "A7 two tools of one name in one list": (
        f"{NAMES}test_a7_of_two_tools_with_one_name_the_first_counts",
        "test_lists.py::test_entries_without_a_name_are_left_out",
    ),
    "A8 a raw name: the error has the candidates": (
        f"{CORNER}test_a_raw_name_is_refused_with_the_names_that_it_may_mean",
    ),
    "A9 a profile of profiles, and one that contains itself": (
        f"{NAMES}test_a9_an_aggregate_may_be_a_server_of_another",
        f"{CORNER}test_a9_the_list_of_a_profile_that_contains_itself_ends",
    ),
    # URIs
    "U1 URIs of any form": (f"{URIS}test_u1_a_uri_of_any_form_has_one",),
    "U2 one URI at several servers": (
        f"{URIS}test_u2_one_uri_of_several_servers_stays_apart",
        f"{DIALOGUES}test_resources_of_one_name_are_two",
    ),
    "U3 templates, also those that overlap, and completion of their variables": (
        f"{URIS}test_u3_a_filled_template_is_what_the_server_would_get",
        f"{URIS}test_u3_templates_that_overlap_stay_apart",
        f"{CORNER}test_a_variable_of_a_template_is_completed_at_its_server",
        f"{REAL}test_resources_prompts_and_completions_are_those_of_their_server",
    ),
    "U4 URIs of user interfaces, in both forms": (f"{REWRITING}test_u4_both_forms_of_the_uri_of_a_user_interface",),
    "U5 URIs in links, embedded resources and messages of prompts, but in no text": (
        f"{REWRITING}test_u5_links_and_embedded_resources_but_nothing_else",
        f"{REWRITING}test_u5_in_messages_of_prompts_and_of_sampling",
    ),
    "U6 contents of another URI than was asked for": (
        f"{CORNER}test_contents_may_have_another_uri_than_was_asked_for",
    ),
    "U7 an update of a URI below the one that was subscribed to": (
        f"{CORNER}test_an_update_may_be_of_a_uri_below_the_one_that_was_subscribed_to",
    ),
    "U8 URIs of the proxy's own files": (
        f"{URIS}test_u8_uris_of_the_profiles_own_files_pass",
        f"{REWRITING}test_u8_the_profiles_own_files_pass_both_ways",
        "test_dialogues_profile_files.py::test_a_file_is_good_at_every_server_of_the_profile",
        f"{REAL}test_a_file_uploaded_for_one_server_is_read_by_another",
    ),
    "U9 a raw URI is of the one server that lists it": (
        f"{CORNER}test_a_raw_uri_is_read_at_the_one_server_that_lists_it",
    ),
    # Failures
    "F1 dead at the start": (
        f"{DIALOGUES}test_a_server_that_cannot_be_started_concerns_nobody_else",
        f"{REAL}test_a_list_without_the_dead_and_the_hanging_server_says_so",
    ),
    "F2 a list takes ten seconds": (
        f"{FAILURES}test_f2_a_list_that_takes_ten_seconds_holds_up_nobody_for_long",
        f"{REAL}test_calls_do_not_wait_for_a_list_that_waits",
        f"{REAL}test_servers_that_start_or_list_late_are_missing_until_they_have_answered",
    ),
    "F3 a start takes eight seconds": (
        f"{DIALOGUES}test_a_list_waits_for_a_slow_server_but_not_for_long",
        f"{DIALOGUES}test_a_server_that_does_not_start_is_waited_for_once",
        f"{REAL}test_servers_that_start_or_list_late_are_missing_until_they_have_answered",
    ),
    "F4 a server dies while it is listed": (f"{CORNER}test_a_server_dies_while_its_list_is_read",),
    "F5 a server comes and goes: a change is told once, and none if the list is the same": (
        f"{REAL}test_a_list_that_differs_is_told_of",
        f"{FAILURES}test_f5_of_a_server_that_comes_and_goes_only_a_list_that_differs_is_told",
        f"{DIALOGUES}test_a_change_is_told_once_the_list_is_read_and_differs",
    ),
    "F6 a cursor without an end, too many entries, too many bytes": (
        f"{FAILURES}test_f6_a_server_whose_list_has_no_end_is_left_out_or_cut",
        "test_lists.py::test_pages_of_a_server_are_bounded",
        "test_lists.py::test_entries_of_a_server_are_bounded",
        "test_lists.py::test_bytes_of_a_server_are_bounded",
    ),
    "F7 one invalid tool is left out alone": (
        f"{FAILURES}test_f7_one_entry_that_clients_refuse_costs_no_other",
        f"{FAILURES}test_f7_a_tool_with_a_wrong_header_is_left_out_alone",
        f"{REAL}test_a_client_uses_one_server_of_many",
    ),
    "F8 all are dead: an error, and no empty list": (
        f"{DIALOGUES}test_nothing_there_is_an_error_and_no_empty_list",
        f"{REAL}test_no_list_is_an_error_if_all_servers_are_down",
    ),
    "F9 a list that was declared is not there": (
        f"{DIALOGUES}test_a_server_without_prompts_has_an_empty_list_of_them",
    ),
    "F10 one wants credentials: the others go on": (
        f"{FAILURES}test_f10_a_server_that_wants_credentials_is_missing_alone",
    ),
    "F11 a start of the proxy while servers are down": (
        "test_snapshots.py::test_a_list_is_there_though_its_server_is_down",
    ),
    # Routing
    "R1 one id at five servers": (f"{ROUTING}test_r1_one_id_at_five_servers_at_once_is_five_requests",),
    "R2 one progress token at two servers": (
        f"{ROUTING}test_r2_one_progress_token_at_two_servers_at_once_is_two_tokens",
    ),
    "R3 a cancellation reaches one server": (f"{ROUTING}test_r3_a_cancellation_reaches_one_server_alone",),
    "R4 two servers ask at once, with one id": (
        f"{ROUTING}test_r4_r11_two_servers_put_a_question_of_one_id",
        f"{DIALOGUES}test_two_servers_ask_at_once",
    ),
    "R5 the log level reaches servers that start later": (
        f"{DIALOGUES}test_the_level_reaches_servers_now_and_later",
        f"{REAL}test_log_messages_say_which_server_they_are_of",
    ),
    "R6 a list changes within a call, and outside": (
        f"{ROUTING}test_r6_a_change_within_a_call_and_outside_is_told_once",
    ),
    "R7 a subscription at three servers: one refuses, one is dead and joins later": (
        f"{ROUTING}test_r7_a_subscription_at_three_servers_of_which_one_refuses_and_one_is_dead",
        f"{LISTENS}test_the_part_of_a_dead_server_is_made_up_for_when_it_is_back",
    ),
    "R8 one of two sessions unsubscribes": (f"{CORNER}test_the_subscription_of_one_session_outlives_that_of_another",),
    "R9 a completion at a server without completions": (
        f"{DIALOGUES}test_a_completion_of_a_server_that_completes_nothing_is_empty",
    ),
    "R10 tasks of one id at two servers": (
        "real/test_task_pairs.py::test_a_client_follows_all_tasks_to_their_end",
        f"{ROUTING}test_r10_tasks_of_one_id_at_two_servers_are_two",
        f"{LISTENS}test_the_list_of_tasks_has_those_of_all_servers_and_of_this_client_alone",
    ),
    "R11 a client with sessions, and a server of each era": (
        f"{ROUTING}test_r4_r11_two_servers_put_a_question_of_one_id",
    ),
    "R12 a ping is answered here": (f"{CORNER}test_a_ping_needs_no_server",),
    "R13 changed roots reach every open leg": (f"{CORNER}test_changed_roots_are_told_to_every_open_server",),
    "R14 a tool that requires tasks, through call_tool": (
        f"{ROUTING}test_r14_a_tool_that_requires_tasks_is_called_as_it_is_without_call_tool",
    ),
    "R15 the header with the name of what is asked for": (
        f"{REWRITING}test_r15_the_header_of_a_request_is_that_of_its_new_params",
    ),
    # Sessions
    "S1 two servers of thirty are used": (f"{CORNER}test_only_servers_that_are_used_are_started",),
    "S2 a leg is lost: its calls fail, and the next one opens it again": (
        f"{DIALOGUES}test_a_lost_server_fails_its_own_calls_only",
        f"{REAL}test_a_server_that_dies_in_a_call_fails_that_call_alone",
    ),
    "S3 a session ends while five servers are opened": (
        f"{ROUTING}test_s3_a_session_that_ends_while_five_servers_are_opened_leaves_none",
    ),
    "S4 clients of other capabilities": (f"{ROUTING}test_s4_clients_with_other_capabilities_have_legs_of_their_own",),
    "S5 no caller gets the list of another": (
        "test_snapshots.py::test_another_caller_or_configuration_has_another_record",
        "test_dialogues_profile_search.py::test_what_a_caller_may_see_is_its_own",
    ),
    # Governance
    "G1 a description changes at the second list": (
        f"{DEFINITIONS}test_g1_g8_a_description_that_changes_is_refused_in_any_way",
    ),
    "G2 a description changes during a session": (
        f"{DEFINITIONS}test_g2_a_description_that_changes_is_refused_before_it_is_listed_again",
        "app/gateway/test_definitions.py::test_g2_a_description_changes_during_a_session",
    ),
    "G3 a tool is renamed": (f"{DEFINITIONS}test_g3_g4_a_tool_that_is_new_or_renamed_is_not_there",),
    "G4 a tool is new": (f"{DEFINITIONS}test_g3_g4_a_tool_that_is_new_or_renamed_is_not_there",),
    "G5 a schema is widened": (f"{DEFINITIONS}test_g5_g6_a_wider_schema_and_another_annotation_are_refused",),
    "G6 a tool is not read-only any more": (
        f"{DEFINITIONS}test_g5_g6_a_wider_schema_and_another_annotation_are_refused",
        f"{DEFINITIONS}test_g6_a_tool_that_may_not_be_read_only_any_more_is_not_called_as_such",
    ),
    "G7 a call without a list": (f"{DEFINITIONS}test_g7_a_tool_that_was_never_listed_is_judged_all_the_same",),
    "G8 a call through call_tool": (f"{DEFINITIONS}test_g1_g8_a_description_that_changes_is_refused_in_any_way",),
    "G9 a lock that cannot be read": ("app/gateway/test_definitions.py::test_g9_nothing_is_served_by_a_corrupt_lock",),
    "G10 a description with the date": (f"{DEFINITIONS}test_g10_a_description_with_the_date_in_it_can_be_ignored",),
    "G11 invisible characters, which are dropped from texts alone": (
        f"{DEFINITIONS}test_g11_invisible_characters_are_in_no_text_and_names_stay",
        f"{DEFINITIONS}test_g11_a_tool_with_invisible_characters_can_be_refused",
        f"{DEFINITIONS}test_g11_instructions_have_no_invisible_characters",
    ),
    "G12 a pattern of raw names holds behind rename and alias": (
        f"{DEFINITIONS}test_g12_rules_speak_of_the_servers_name_behind_alias_and_rename",
    ),
    # Search
    "Q1 an exact name is first": (f"{SEARCHES}test_q1_an_exact_name_is_first",),
    "Q2 an empty query": (f"{SEARCHES}test_q2_an_empty_query_shows_all_by_name",),
    "Q3 other languages": (f"{SEARCHES}test_q3_tools_of_other_languages_are_found_by_their_own_words",),
    "Q4 a query of ten kilobytes": (f"{SEARCHES}test_q4_of_a_long_query_the_beginning_counts",),
    "Q5 hidden and denied tools": (f"{SEARCHES}test_q5_what_is_hidden_denied_or_blocked_is_never_found",),
    "Q6 a list changes": (f"{SEARCHES}test_q6_the_index_follows_a_list_and_keeps_what_has_not_changed",),
    "Q7 pages of hits, and no hits": (f"{SEARCHES}test_q7_pages_have_each_hit_once_and_nothing_says_how_to_ask_again",),
}
COUNTS: Final = {"A": 9, "U": 9, "F": 11, "R": 15, "S": 5, "G": 12, "Q": 7}


def test_each_number_is_there_once() -> None:
    numbers = [f"{letter}{number}" for letter, count in COUNTS.items() for number in range(1, count + 1)]
    assert [case.partition(" ")[0] for case in CASES] == numbers


@each_row("case", CASES)
def test_the_tests_of_each_case_exist(case: str) -> None:
    for test in CASES[case]:
        path, name = test.split("::")
        file = TESTS / path if "/" in path else Path(__file__).parent / path
        assert re.search(rf"^(async )?def {name}\(", file.read_text(), re.MULTILINE), test
