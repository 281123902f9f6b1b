// SPDX-License-Identifier: Apache-2.0
#include "trainer/profile/profile_html.hpp"

#include <fmt/format.h>

namespace dp::trainer {

std::string escaped(std::string_view text) {
    std::string safe;
    for (const char c : text) {
        if (c == '&')
            safe += "&amp;";
        else if (c == '<')
            safe += "&lt;";
        else if (c == '>')
            safe += "&gt;";
        else if (c == '"')
            safe += "&quot;";
        else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f)
            safe += "\ufffd";
        else
            safe += c;
    }
    return safe;
}

std::string html_table(std::string_view caption, const std::vector<std::string_view>& heads,
                       const std::vector<std::vector<std::string>>& rows) {
    const auto kind = [&](std::size_t column) {
        return heads[column].starts_with('<') ? "" : R"( class="number")";
    };
    // It can be scrolled by keyboard, so it can be focused.
    std::string html = fmt::format(R"(<div class="wide" tabindex="0" role="region" aria-label="{0}"><table>
<caption>{0}</caption>
<thead><tr>)",
                                   escaped(caption));
    for (std::size_t i = 0; i < heads.size(); ++i)
        html += fmt::format(R"(<th scope="col"{}>{}</th>)", kind(i),
                            heads[i].substr(heads[i].starts_with('<') ? 1 : 0));
    html += "</tr></thead>\n<tbody>\n";
    for (const auto& row : rows) {
        html += fmt::format(R"(<tr><th scope="row"{}>{}</th>)", kind(0), row[0]);
        for (std::size_t i = 1; i < row.size(); ++i) html += fmt::format("<td{}>{}</td>", kind(i), row[i]);
        html += "</tr>\n";
    }
    return html + "</tbody></table></div>\n";
}

}  // namespace dp::trainer
