// SPDX-License-Identifier: Apache-2.0
//
// The CSS of profile_page.cpp: the colours and the type of the page of dpctl report.
#pragma once

#include <string_view>

namespace dp::trainer {

inline constexpr std::string_view kProfileStyle = R"(
  :root { color-scheme: light dark;
    --bg: #ffffff; --fg: #1b1d21; --soft: #53585f; --line: #c9ccd1; --panel: #f4f5f7; --focus: #b34700; --point: #0072b2; }
  @media screen and (prefers-color-scheme: dark) {
    :root { --bg: #15171b; --fg: #e6e8eb; --soft: #aab1b9; --line: #3d424a; --panel: #1e2126; --focus: #f2a65a; --point: #56b4e9; }
  }
  * { box-sizing: border-box; }
  body { margin: 0 auto; max-width: 66rem; padding: 1rem; background: var(--bg); color: var(--fg);
    font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
  h1, h2 { line-height: 1.25; }
  h1 { margin: 0; font-size: 1.5rem; }
  h2 { margin: 2.5rem 0 0.5rem; padding-top: 0.75rem; border-top: 2px solid var(--line); font-size: 1.3rem; }
  p, ul { margin: 0.4rem 0; }
  footer { margin-top: 2.5rem; padding-top: 0.75rem; border-top: 2px solid var(--line); }
  code { padding: 0.1rem 0.3rem; border-radius: 3px; background: var(--panel); white-space: nowrap; }
  .soft, footer { color: var(--soft); font-size: 0.9rem; }
  :focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
  .figures { display: flex; flex-wrap: wrap; gap: 0.5rem 2.5rem; align-items: flex-end; margin: 0.75rem 0; }
  .figures div { display: flex; flex-direction: column-reverse; }
  .figures dd { margin: 0; font-size: 1.5rem; font-weight: 600; line-height: 1.2; }
  .figures dt { color: var(--soft); font-size: 0.9rem; }
  .figures .main dd { font-size: 2.6rem; }
  .advice { padding: 0.5rem 1rem; border-left: 5px solid var(--point); background: var(--panel); }
  .advice ul { padding-left: 1.2rem; }
  .wide { max-height: 36rem; overflow: auto; }
  .across { overflow: auto hidden; }
  table { border-collapse: collapse; margin: 0.5rem 0; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
  caption { padding: 0.2rem 0; color: var(--soft); text-align: left; }
  th, td { padding: 0.2rem 1.4rem 0.2rem 0; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
  th[scope=row] { min-width: 6rem; font-weight: 500; }
  thead th { position: sticky; top: 0; background: var(--bg); vertical-align: bottom; }
  .number { text-align: right; }
  .none { color: var(--soft); }
  svg { vertical-align: middle; }
  svg text { fill: var(--soft); font-size: 12px; paint-order: stroke; stroke: var(--bg); stroke-width: 4px; stroke-linejoin: round; }
  .patterns { position: absolute; }
  .bar { display: block; margin: 0.75rem 0; }
  .bar rect { stroke: var(--bg); }
  .swatch { margin-right: 0.6em; }
  .chart { display: block; width: 100%; min-width: 36rem; margin: 0.75rem 0; }
  .chart .grid { stroke: var(--line); }
  .chart .roof, .chart .held { fill: none; stroke: var(--fg); stroke-width: 2px; }
  .chart .held { stroke-dasharray: 7 4; }
  .chart .leader { stroke: var(--soft); }
  .point { fill: var(--point); fill-opacity: 0.75; stroke: var(--bg); }
  .mark { fill: var(--fg); stroke: var(--bg); stroke-width: 2px; }
  @media (max-width: 50rem) {
    table { font-size: 0.85rem; }
    th, td { padding-right: 0.8rem; }
  }
  @media print {
    body { max-width: none; padding: 0; font-size: 10pt; }
    tr, .bar, .chart, .figures, .advice { break-inside: avoid; }
    h2, caption, .soft { break-after: avoid; }
    table { font-size: 8pt; }
    th, td { padding-right: 0.6rem; white-space: normal; }
    thead th { position: static; }
    .wide, .across { max-height: none; overflow: visible; }
  }
)";

}  // namespace dp::trainer
